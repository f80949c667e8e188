"""Copies between GPUs: their values, how far they are below what was expected, and their matrices for a page."""
