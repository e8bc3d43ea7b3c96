"""A site of a federation: one process with the ratings of its users, which never leave it."""
