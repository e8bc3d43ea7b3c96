"""The command lines of `fedmmf reproduce` and `fedmmf bench`."""
