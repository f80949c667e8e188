"""Containers of the images under test: built when missing, run with what a test says, never left behind."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpucheck.images.build import BuildOptions, build
from gpucheck.images.versions import LABEL, Variant, read_versions
from gpucheck.lab.system import engine

ROOT = Path(__file__).parents[2]
VERSIONS = read_versions(ROOT)
# Which variants: the CPU ones unless told otherwise, because a CUDA variant is 3 GB to download.
ASKED = tuple(os.environ.get("GPUCHECK_IMAGES", "torch-cpu tensorflow-cpu").split())
SECONDS = 300


@dataclass(frozen=True)
class Answer:
    """How a container ended."""

    status: int
    output: str

    @property
    def json(self) -> dict[str, Any]:
        """The JSON object that the output ends with."""
        found: dict[str, Any] = json.loads(self.output[self.output.index("{") :])
        return found


class Image:
    """One image under test. Raises LabError when it cannot be had: a test that is asked for never skips."""

    def __init__(self, name: str) -> None:
        self.client = engine()
        self.name = name
        self.variant: Variant = VERSIONS.variant(name)
        self.built = build(self.client, ROOT, name, BuildOptions())
        self.tag = self.built.tag
        self.image = self.client.images.get(self.tag)
        self.labels = {key: value for key, value in self.image.labels.items() if value}

    def start(self, *command, **options):
        """A running container; the caller removes it."""
        return self.client.containers.run(
            self.tag, list(command) or None, detach=True, labels={LABEL: "test"}, network_mode="none", **options
        )

    def run(self, *command, **options) -> Answer:
        """A container's exit status and output, once it has ended."""
        container = self.start(*command, **options)
        try:
            status = container.wait(timeout=SECONDS)["StatusCode"]
            return Answer(status, container.logs().decode(errors="replace"))
        finally:
            container.remove(force=True)

    def python(self, code: str, **options) -> Answer:
        """A Python program inside."""
        return self.run("python", "-c", code, **options)
