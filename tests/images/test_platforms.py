"""An image is built where wheels of exactly its build exist; elsewhere the reason is said and nothing is built."""

import pytest

from gpucheck.images import build, versions
from gpucheck.images.build import BuildOptions
from gpucheck.images.versions import require_platform
from gpucheck.lab.system import LabError
from tests.images.test_versions import NAMES, ROOT, VERSIONS


class Engine:
    """A Docker engine of one architecture."""

    def __init__(self, arch):
        self.arch = arch

    def version(self):
        return {"ApiVersion": "1.41", **({"Arch": self.arch} if self.arch else {})}


@pytest.fixture
def machine(monkeypatch):
    return lambda name: monkeypatch.setattr(versions.platform, "machine", lambda: name)


@pytest.mark.parametrize("name", NAMES)
def test_on_arm64_exactly_the_rows_with_its_wheels_are_built(machine, name):
    machine("aarch64")

    if "linux/arm64" in VERSIONS.variants[name].filled.platforms:
        require_platform(Engine("arm64"), VERSIONS, name)
    else:
        with pytest.raises(LabError, match=rf"{name} cannot be built for linux/arm64: (?s:.*)build it on amd64"):
            require_platform(Engine("arm64"), VERSIONS, name)


@pytest.mark.parametrize(
    ("host", "engine", "name", "words"),
    [
        ("aarch64", "arm64", "torch-cu126", "or build here one of: torch-cpu, torch-cu132, tensorflow-cpu"),
        # A remote engine: pip of this machine would download wheels that do not run there.
        (
            "x86_64",
            "arm64",
            "torch-cu132",
            "(?s)engine is linux/arm64 and this host linux/amd64.*image context torch-cu132",
        ),
        ("ppc64le", "ppc64le", "torch-cu132", "linux/ppc64le: no ppc64le wheel (?s:.*)one of: none"),
    ],
)
def test_what_cannot_be_built_there_is_refused_with_what_can(machine, host, engine, name, words):
    machine(host)

    with pytest.raises(LabError, match=words):
        require_platform(Engine(engine), VERSIONS, name)


def test_an_engine_that_states_no_architecture_is_this_machines(machine):
    machine("aarch64")

    require_platform(Engine(None), VERSIONS, "torch-cu132")
    with pytest.raises(LabError, match="linux/arm64"):
        require_platform(Engine(None), VERSIONS, "torch-cu126")


def test_a_build_asks_before_anything_else(machine, monkeypatch):
    machine("aarch64")
    monkeypatch.setattr(build, "plan_of", lambda *_: pytest.fail("the build went on"))

    with pytest.raises(LabError, match="torch-cu126 cannot be built for linux/arm64"):
        build.build(Engine("arm64"), ROOT, "torch-cu126", BuildOptions())
