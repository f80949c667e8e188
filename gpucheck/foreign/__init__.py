"""Read input of unknown origin: files, compressed content and YAML, each bounded before it is parsed.

The result is the content, or an error of one line.
"""

from gpucheck.foreign.files import (
    UnreadableInput,
    bounded,
    opened,
    read_bytes,
    read_text,
    shown,
    text_of,
    unpacked,
    unpacked_pieces,
)

__all__ = [
    "UnreadableInput",
    "bounded",
    "opened",
    "read_bytes",
    "read_text",
    "shown",
    "text_of",
    "unpacked",
    "unpacked_pieces",
]
