"""Run N ranks: start, watch, deadline, stacks of those that hang, end. ``supervisor`` is outside, ``rank`` inside."""
