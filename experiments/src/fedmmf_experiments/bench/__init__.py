"""Measurements beside other tools, in one run on one machine."""
