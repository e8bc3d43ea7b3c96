"""Fitted models in other tools: LensKit, MLflow, TensorBoard, FAISS, hnswlib, and plain files.

Each module needs its own library, from the extra `interop`, and loads it when it is used.
"""
