"""The driver packages of the lab's mirror install the simulated CUDA driver library; built here without a container."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.lab import catalogue
from gpucheck.lab.lifecycle import library_files
from gpucheck.simulator.activation import STAND_INS

MIRROR = Path(__file__).parents[2] / "images/lab/mirror"
PROGRAM = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
MISMATCH = "803"  # library and loaded kernel module have different versions


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """The mirror's own programs, with their directories below a temporary one, and its libraries compiled."""
    root = tmp_path_factory.mktemp("mirror")
    found = {}
    for name in ("programs", "packages"):
        spec = importlib.util.spec_from_file_location(name, MIRROR / f"{name}.py")
        found[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[name])
        found[name].BUILD, found[name].WORK = root / "build", root / "work"
    sources = library_files()
    for name in ("nvml", "cuda"):
        shutil.copytree(sources[name], root / "build" / name, ignore=shutil.ignore_patterns("__pycache__"))
    text = (MIRROR / "build_repos.py").read_text(encoding="utf-8")
    start = text.index("def compile_cuda_library")
    own = {"BUILD": root / "build", "WORK": root / "work", "run": found["programs"].run}
    exec(text[start : text.index("\n\n\n", start)], own)  # noqa: S102 - the function as the container runs it
    (root / "work/580").mkdir(parents=True)
    (root / "work/595").mkdir()
    own["compile_cuda_library"]()
    for branch in ("580", "595"):
        (root / f"work/{branch}/libnvidia-ml.so").touch()
    yield found["packages"], root
    for name in found:
        del sys.modules[name]


def package(name, kind, branch):
    """The entry of the catalogue as build_repos reads it."""
    (entry, *_) = (
        one
        for one in json.loads(catalogue.to_json())["packages"]
        if one["kind"] == kind and one["cuda"] and one["name"].startswith(name) and one["version"].startswith(branch)
    )
    return entry


@pytest.mark.slow
def test_a_deb_installs_the_library_whose_version_is_that_of_the_package(mirror, tmp_path):
    packages, root = mirror
    machine = tmp_path / "machine"
    profile = simulator.load("p100-pcie-x2")
    simulator.make(profile, machine, (), STAND_INS)
    shutil.rmtree(machine / "lib")
    answers = {}
    for branch in ("580", "595"):
        entry = package("libnvidia-compute", "deb", branch)
        packages.build_deb(entry, root / branch, int(branch))
        (deb,) = (root / branch).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(deb), str(tmp_path / branch)], check=True)
        folder = tmp_path / branch / entry["cuda"].lstrip("/")
        assert (folder / "libcuda.so.1").readlink().name == f"libcuda.so.{entry['version']}"
        own = {**os.environ, "LD_LIBRARY_PATH": str(folder), "GPUCHECK_SIMULATOR": str(machine)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=own, capture_output=True, text=True, check=True)
        answers[entry["version"]] = done.stdout.strip()

    assert answers.pop(profile.driver.version) == "0"
    assert set(answers.values()) == {MISMATCH}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="rpmbuild is not installed")
def test_an_rpm_installs_it_too(mirror):
    packages, root = mirror
    entry = package("nvidia-driver-cuda-libs", "rpm", "580")
    packages.build_rpm(entry, root / "rpm", 1)
    (rpm,) = (root / "rpm").glob("*.rpm")
    listed = subprocess.run(["rpm", "-qpl", str(rpm)], capture_output=True, text=True, check=True).stdout.split()

    assert {f"/usr/lib64/libcuda.so.{entry['version']}", "/usr/lib64/libcuda.so.1"} <= set(listed)
