"""A kernel log in bytes, decoded as gpucheck diagnose does."""

from gpucheck.imports._text import decode, lines_of
from gpucheck.imports.logs import log_of
from gpucheck.model import KernelLog


def read(data: bytes) -> KernelLog:
    return log_of(lines_of(decode(data)))
