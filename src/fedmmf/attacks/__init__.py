"""Attacks on what leaves a party, one file each, and the audit that runs them all."""
