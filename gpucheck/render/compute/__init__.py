"""A compute report as text, as JSON (``gpucheck.compute/1``), and its traces as SVG."""

from gpucheck.render.compute.text import to_text
from gpucheck.render.compute.traces import to_svg
from gpucheck.render.json import to_json

__all__ = ["to_json", "to_svg", "to_text"]
