"""Factorization of the masked ratings into user and item factors."""
