"""A file tree that is written once: values as the kernel prints them, and relative links."""

import os
from collections.abc import Mapping
from pathlib import Path


class Tree:
    """Files below ``root``; every path is relative to it. Folders are made as they are needed."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._made: set[str] = set()

    def folder(self, path: str) -> None:
        """An existing, perhaps empty folder."""
        if path not in self._made:
            os.makedirs(f"{self._root}/{path}", exist_ok=True)  # noqa: PTH103 - thousands of files: strings are faster
            self._made.add(path)

    def write(self, folder: str, files: Mapping[str, str]) -> None:
        """Each value with a newline at its end, as the kernel writes them."""
        for name, text in files.items():
            self.raw(f"{folder}/{name}", f"{text}\n".encode())

    def raw(self, path: str, content: bytes) -> None:
        """A file with exactly this content."""
        self.folder(path.rpartition("/")[0])
        with open(f"{self._root}/{path}", "wb", buffering=0) as file:  # noqa: PTH123 - as above
            file.write(content)

    def link(self, path: str, target: str) -> None:
        """A relative link, so that the tree can be copied anywhere."""
        above = path.rpartition("/")[0]
        self.folder(above)
        os.symlink(os.path.relpath(target, above), f"{self._root}/{path}")  # noqa: PTH211 - as above
