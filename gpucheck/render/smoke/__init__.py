"""A training test: its report as text, and its phases over time."""

from gpucheck.render.smoke.text import Part, to_text

__all__ = ["Part", "to_text"]
