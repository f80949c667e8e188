"""Profiles made from recordings of real machines."""

from gpucheck.simulator.recorded.profile import from_recording, to_yaml

__all__ = ["from_recording", "to_yaml"]
