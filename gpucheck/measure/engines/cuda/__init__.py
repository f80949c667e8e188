"""Shared code of the CUDA engines: error codes, and the timing of queued copies."""
