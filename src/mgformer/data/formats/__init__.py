"""Readers of interaction files, one module for each kind of file."""
