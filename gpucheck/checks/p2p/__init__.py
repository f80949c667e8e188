"""Checks of GPU pairs: peer access and topology."""
