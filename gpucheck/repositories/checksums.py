"""Checksums that an index vouches with: NVIDIA states SHA-256 for CUDA, and SHA-512 alone for the container toolkit."""

import hashlib
from typing import NamedTuple

ALGORITHMS = ("sha256", "sha512")


class Checksum(NamedTuple):
    """A checksum of a file. algorithm: as hashlib calls it; digest in lower-case hexadecimal."""

    algorithm: str
    digest: str

    def matches(self, content: bytes) -> bool:
        """Whether it is the checksum of this content."""
        return hashlib.new(self.algorithm, content).hexdigest() == self.digest
