"""A compute report as text and as JSON (``gpucheck.compute/1``)."""

from gpucheck.render.compute.text import to_text
from gpucheck.render.json import to_json

__all__ = ["to_json", "to_text"]
