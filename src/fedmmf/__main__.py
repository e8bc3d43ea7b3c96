"""`python -m fedmmf`."""

from fedmmf.cli import main

main()
