"""Files: written atomically, checkpoints, and what may be unpacked."""
