"""Start, watch and end child processes: each has a deadline, and none outlives the run.

Nothing here is specific to GPUs, training or measuring; those packages define what runs and evaluate how it ended.
"""
