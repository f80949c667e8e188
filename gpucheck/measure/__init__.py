"""Measuring the links: copies that are checked first and timed then, on real GPUs, on CPU processes or simulated.

The parent plans, watches and says what was observed, unjudged; everything that touches a device runs in a child process
with a deadline.
"""
