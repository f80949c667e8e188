"""Measure links: verified, then timed copies on real GPUs, CPU processes or simulated machines.

The parent process plans, watches and returns observations without a verdict. Everything that touches a device runs in a
child process with a deadline.
"""
