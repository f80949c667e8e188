"""Checks of single GPUs: presence, memory, clocks, power, modes and processes."""
