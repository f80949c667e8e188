"""A topology as text and as JSON."""

from gpucheck.render.topology.text import MEANING, to_json, to_text

__all__ = ["MEANING", "to_json", "to_text"]
