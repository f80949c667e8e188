"""Processes that are started, watched and ended from outside: none outlasts its deadline, none is left behind.

Knows nothing of GPUs, training or measuring; those rooms say what runs and judge how it ended.
"""
