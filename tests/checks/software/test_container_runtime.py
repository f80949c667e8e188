"""Container engines and the NVIDIA runtime."""

import msgspec
import pytest

from gpucheck.checks.software import container_runtime
from gpucheck.model import PackageVersion
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN
from tests.fakes import SYSTEM, facts

TOOLKIT = PackageVersion(name="nvidia-container-toolkit", version="1.18.1-1")
DOCKER = PackageVersion(name="docker-ce", version="28.2.2")
PODMAN = PackageVersion(name="podman", version="5.4.2")


@pytest.mark.parametrize(
    ("packages", "daemon", "cdi", "verdict", "code"),
    [
        ((), None, (), SKIP, "no-container-engine"),
        ((DOCKER,), None, (), SKIP, "no-container-toolkit"),
        ((TOOLKIT,), None, (), SKIP, "no-container-engine"),
        # --gpus needs no more than the toolkit (NVIDIA/nvidia-docker#1420).
        ((DOCKER, TOOLKIT), None, (), WARN, "docker-without-runtime"),
        ((PODMAN, TOOLKIT), None, (), WARN, "engine-without-cdi"),
        ((DOCKER, TOOLKIT), '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}', (), PASS, None),
        ((DOCKER, TOOLKIT), "{}", ("nvidia.yaml",), PASS, None),
        ((DOCKER, TOOLKIT), "{", (), FAIL, "docker-config-invalid"),
        ((DOCKER, TOOLKIT), "[]", (), WARN, "docker-without-runtime"),
    ],
)
def test_an_engine_that_was_never_told_of_the_toolkit_is_named(packages, daemon, cdi, verdict, code):
    """And a configuration that Docker cannot read fails."""
    files = {} if daemon is None else {"/etc/docker/daemon.json": daemon}

    (finding,) = container_runtime.evaluate(facts(packages=packages, files=files, folders={"/etc/cdi": cdi}))

    assert (finding.verdict, finding.code) == (verdict, code and f"software.{code}")


CONTAINERD = PackageVersion(name="containerd.io", version="2.1")
CONTAINERD_FILE = {"/etc/containerd/config.toml": '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]'}


@pytest.mark.parametrize(
    ("changes", "verdict", "code"),
    [
        ({"packages": None}, UNKNOWN, "packages-unreadable"),
        ({"system": msgspec.structs.replace(SYSTEM, container="docker")}, SKIP, "engines-outside-container"),
        (
            {"packages": (DOCKER, TOOLKIT), "folders": {"/etc/docker": ("daemon.json",)}},
            UNKNOWN,
            "docker-config-unreadable",
        ),
        ({"packages": (CONTAINERD, TOOLKIT)}, WARN, "engine-not-configured"),
        ({"packages": (CONTAINERD, TOOLKIT), "files": CONTAINERD_FILE}, PASS, None),
        (
            {"packages": (CONTAINERD, TOOLKIT), "folders": {"/etc/containerd/conf.d": ("99-nvidia.toml",)}},
            PASS,
            None,
        ),
        ({"packages": (DOCKER, CONTAINERD, TOOLKIT), "files": CONTAINERD_FILE}, WARN, "docker-without-runtime"),
    ],
)
def test_engines_that_cannot_be_looked_up_are_not_absent(changes, verdict, code):
    """The engines of a container's host, an unreadable file, and containerd without Docker."""
    (finding,) = container_runtime.evaluate(facts(**changes))

    assert (finding.verdict, finding.code) == (verdict, code and f"software.{code}")


@pytest.mark.parametrize(
    ("packages", "files", "needs"),
    [
        ((DOCKER,), {}, ["folder:/etc/docker"]),
        ((DOCKER, CONTAINERD), {"/etc/docker/daemon.json": "{}"}, []),
        ((CONTAINERD,), {}, ["text:/etc/containerd/config.toml", "folder:/etc/containerd/conf.d"]),
        ((PODMAN,), {}, []),
    ],
)
def test_files_of_engines_that_are_not_there_are_not_read(packages, files, needs):
    assert list(container_runtime.more(facts(packages=packages, files=files))) == needs
