"""BuildKit makes the same image as the engine's old builder."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from gpucheck.images.build import BuildOptions, assemble, command_line, files_for_build, plan_of
from gpucheck.images.versions import LABEL, read_versions
from gpucheck.lab.images import proxies
from tests.images.containers import ROOT, Image

pytestmark = pytest.mark.images

SECONDS = 900
# Byte code and SBOM too: the same wheels give the same bytes.
CONTENT = "find /opt/venv /workspace /home/any -type f -exec sha256sum {} + | sort -k 2"


@pytest.fixture(scope="module")
def legacy():
    """The image as the engine's old builder makes it."""
    return Image("torch-cpu")


@pytest.fixture(scope="module")
def other(legacy):
    """The tag of the image that BuildKit made."""
    plan = plan_of(legacy.client, ROOT, read_versions(ROOT), legacy.name, None)
    assemble(plan)
    tag = "localhost/gpucheck/torch-by-buildkit:test"
    with files_for_build(legacy.client, plan, BuildOptions()) as served:
        words = command_line(plan, {**plan.arguments(), **served, **proxies()})
        words[words.index(plan.tag)] = tag
        words[0] = buildkit()
        shell(words, DOCKER_BUILDKIT="1")
    yield tag
    shell(["docker", "rmi", "--force", tag])


def buildkit():
    """Clients newer than 20.10 want buildx for it: the first client on PATH that can."""
    clients = [str(found) for folder in os.get_exec_path() if (found := Path(folder) / "docker").exists()]
    asked = {**os.environ, "DOCKER_BUILDKIT": "1"}
    for client in clients:
        if subprocess.run([client, "build", "--help"], check=False, capture_output=True, env=asked).returncode == 0:
            return client
    pytest.fail(f"no docker client here can use BuildKit (asked {clients}): install docker-buildx")


def shell(words, **environment):
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=SECONDS, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def inside(tag, *command):
    return shell(["docker", "run", "--rm", "--network", "none", "--shm-size", "1g", tag, *command])


def test_it_holds_the_same_files(legacy, other):
    wanted = legacy.run("sh", "-c", CONTENT).output.splitlines()

    assert len(wanted) > 5000
    assert set(inside(other, "sh", "-c", CONTENT).splitlines()) ^ set(wanted) == set()


def test_it_has_the_same_settings_and_labels(legacy, other):
    config = json.loads(shell(["docker", "image", "inspect", other]))[0]["Config"]
    wanted = legacy.image.attrs["Config"]

    for key in ("User", "Entrypoint", "Cmd", "WorkingDir"):
        assert config[key] == wanted[key]
    assert set(config["Env"]) == set(wanted["Env"])
    made = "org.opencontainers.image.created"
    ours = {key: value for key, value in wanted["Labels"].items() if value and key != made}
    assert ours[LABEL] == legacy.name
    assert {key: config["Labels"].get(key) for key in ours} == ours


def test_its_self_test_passes(other):
    assert "PASS" in inside(other, "gpucheck", "image", "--level", "full")


def test_nothing_of_the_build_is_left_in_its_history(other):
    history = shell(["docker", "history", "--no-trunc", other])

    assert "WHEELS_URL=http" not in history
    assert "CA_URL=http" not in history
