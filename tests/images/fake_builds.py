"""A Docker engine of values for builds."""

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors

from gpucheck.images.build import SBOM
from tests.lab.fake_docker import FakeNetwork


class Engine:
    """A Docker engine of values: what it builds it remembers, and what it is asked is written down."""

    def __init__(self, size=10**9):
        self.made = {}
        self.calls = []
        self.pulled = None
        self.size = size
        self.networks = SimpleNamespace(get=lambda _name: FakeNetwork("bridge", "127.0.0.0/8", gateway="127.0.0.1"))
        self.removed = []
        self.images = SimpleNamespace(
            build=self.build, get=self.get, prune=self.prune, pull=self.pull, remove=self.removed.append
        )
        self.containers = SimpleNamespace(create=self.create)

    def version(self):
        return {}

    def build(self, **options):
        self.calls.append(options)
        old = self.made.pop(options["tag"], None)
        made = SimpleNamespace(
            id=f"sha256:{len(self.calls)}",
            labels=options["labels"],
            tags=[options["tag"]],
            # What Docker 29 calls the size: compressed bytes beside the unpacked ones.
            attrs={"Size": self.size + 10**9},
            history=lambda: [{"Size": 1000}, {"Size": self.size - 1000}],
        )
        if old:
            old.tags = []
            self.made[old.id] = old
        self.made[options["tag"]] = self.made[made.id] = made

    def get(self, tag):
        if tag not in self.made:
            raise docker.errors.ImageNotFound(tag)
        return self.made[tag]

    def prune(self, filters):
        assert filters == {"dangling": True, "label": "gpucheck.images=build"}

    def pull(self, name, tag):
        self.pulled = f"{name}@{tag}"
        if isinstance(self.size, Exception):
            raise self.size

    def create(self, _tag, **_options):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            entry = tarfile.TarInfo(Path(SBOM).name)
            entry.size = 2
            tar.addfile(entry, io.BytesIO(b"{}"))
        return SimpleNamespace(get_archive=lambda _path: ([buffer.getvalue()], None), remove=lambda **_: None)


def fake_engine(**options: Any) -> Any:
    """Any, so that it passes for a docker client."""
    return Engine(**options)
