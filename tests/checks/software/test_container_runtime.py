"""Container engines and the NVIDIA runtime."""

import msgspec
import pytest

from gpucheck.checks.software import container_runtime
from gpucheck.model import PackageVersion
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.fakes import SYSTEM, FakeHost

TOOLKIT = PackageVersion(name="nvidia-container-toolkit", version="1.18.1-1")
DOCKER = PackageVersion(name="docker-ce", version="28.2.2")


@pytest.mark.parametrize(
    ("packages", "daemon", "cdi", "verdict"),
    [
        ((), None, (), SKIP),
        ((DOCKER,), None, (), SKIP),
        ((TOOLKIT,), None, (), SKIP),
        ((DOCKER, TOOLKIT), None, (), WARN),
        ((DOCKER, TOOLKIT), '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}', (), PASS),
        ((DOCKER, TOOLKIT), "{}", ("nvidia.yaml",), PASS),
        ((DOCKER, TOOLKIT), "{", (), FAIL),
        ((DOCKER, TOOLKIT), "[]", (), WARN),
    ],
)
def test_an_engine_that_was_never_told_of_the_toolkit_is_named(packages, daemon, cdi, verdict):
    """And a configuration that Docker cannot read fails."""
    files = {} if daemon is None else {"/etc/docker/daemon.json": daemon}

    (finding,) = judge(container_runtime, FakeHost(packages_=packages, files=files, folders={"/etc/cdi": cdi}))

    assert finding.verdict is verdict


CONTAINERD = PackageVersion(name="containerd.io", version="2.1")
CONTAINERD_FILE = {"/etc/containerd/config.toml": '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]'}


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"packages_": None}, UNKNOWN, "package database"),
        ({"system_": msgspec.structs.replace(SYSTEM, container="docker")}, SKIP, "docker container"),
        ({"packages_": (DOCKER, TOOLKIT), "folders": {"/etc/docker": ("daemon.json",)}}, UNKNOWN, "cannot be read"),
        ({"packages_": (CONTAINERD, TOOLKIT)}, WARN, "no engine"),
        ({"packages_": (CONTAINERD, TOOLKIT), "files": CONTAINERD_FILE}, PASS, ""),
        (
            {"packages_": (CONTAINERD, TOOLKIT), "folders": {"/etc/containerd/conf.d": ("99-nvidia.toml",)}},
            PASS,
            "",
        ),
        ({"packages_": (DOCKER, CONTAINERD, TOOLKIT), "files": CONTAINERD_FILE}, WARN, "no engine"),
    ],
)
def test_engines_that_cannot_be_looked_up_are_not_absent(changes, verdict, words):
    """The engines of a container's host, an unreadable file, and containerd without Docker."""
    (finding,) = judge(container_runtime, FakeHost(**changes))

    assert finding.verdict is verdict
    assert words in finding.why
