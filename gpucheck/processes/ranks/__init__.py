"""Run N ranks in a private directory: start, watch, deadline, stacks of hung ranks, end. Used by train and measure.

``supervisor`` is the outside, ``rank`` runs inside each rank, ``run_directory`` holds the files between them.
"""
