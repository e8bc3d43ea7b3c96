"""Files: atomic writes, checkpoints, and limits on unpacking."""
