"""A topology as text and as JSON (``gpucheck.topology/1``)."""

from gpucheck.render.json import to_json
from gpucheck.render.topology.text import MEANING, to_text

__all__ = ["MEANING", "to_json", "to_text"]
