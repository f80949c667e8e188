"""Plan a run: the GPUs, the steps, and simultaneous copies. Pure functions."""
