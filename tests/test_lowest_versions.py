"""The lowest versions of all dependencies that pyproject.toml allows, installed together: gpucheck works with them.

torch, TensorFlow and CuPy are not among them: the smallest of their floors is a download of 200 MB.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from gpucheck.bundle import wheels
from gpucheck.host.recording import read_recording
from gpucheck.lab.wheelhouse import own_wheel
from gpucheck.render.formats import FORMATS
from tests.shared import END_S, made_once
from tests.stack.hosts import host

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[1]
EXTRAS = ("fleet", "provision")
# What the tests that are run with the lowest versions need, at the floors of the extra "dev".
TEST_TOOLS = ("pytest", "hypothesis")
OLDEST = "python3.10"


def requirements(*extras: str) -> Iterator[Requirement]:
    """What pyproject.toml asks for, with these extras."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = (line for extra in extras for line in project["optional-dependencies"][extra])
    yield from map(Requirement, (*project["dependencies"], *optional))


def floor(requirement: Requirement) -> Version:
    (lowest,) = (Version(part.version) for part in requirement.specifier if part.operator == ">=")
    return lowest


def call(words: list[object], **options: object) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        check=False,
        timeout=END_S,
        **options,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return str(done.stdout)


def usable(python: str) -> bool:
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module", params=[sys.executable, OLDEST], ids=["this-python", OLDEST])
def environment(request, tmp_path_factory):
    """A virtual environment with gpucheck and the lowest versions of what it depends on."""
    if shutil.which(request.param) is None or not usable(request.param):
        pytest.skip(f"not run: {request.param} is not installed")
    name = f"lowest-{request.param_index}"
    return made_once(tmp_path_factory, name, lambda folder: install(request.param, folder)) / "venv"


def install(python: str, folder: Path) -> None:
    (folder / "wheel").mkdir()
    wheel = own_wheel(ROOT, folder / "wheel")
    tools = [f"{r.name}>={floor(r)}" for r in requirements("dev") if r.name in TEST_TOOLS]
    index = os.environ | wheels._index()
    uv = [sys.executable, "-m", "uv"]
    call([*uv, "venv", "--quiet", "--python", python, folder / "venv"])
    words = [*uv, "pip", "install", "--quiet", "--python", folder / "venv/bin/python"]
    lowest = ["--resolution", "lowest-direct", "--index-strategy", "unsafe-best-match", "--no-config"]
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    call([*words, *lowest, "--requirement", ROOT / "pyproject.toml", *extras, *tools], env=index)
    call([*words, "--no-deps", wheel], env=index)


@pytest.fixture
def gpucheck(environment, tmp_path):
    """Run gpucheck of that environment; its status and what it printed. No torch is there."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(environment.parent / "cache"), "PYTHONPATH": ""}
    variables["PATH"] = f"{environment}/bin:{variables['PATH']}"

    def run(*arguments: object, status: int | None = 0) -> str:
        words = [str(environment / "bin/gpucheck"), *map(str, arguments)]
        done = subprocess.run(
            words, capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=END_S, check=False
        )
        assert status in (None, done.returncode), f"{words}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


def test_every_lowest_version_is_the_one_that_is_installed(environment):
    names = [(r.name, floor(r)) for r in requirements(*EXTRAS)]
    code = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    found = json.loads(call([environment / "bin/python", "-c", code, *(name for name, _ in names)]))

    assert {name: Version(version) for name, version in found.items()} == dict(names)


@pytest.mark.parametrize("profile", ["hgx-h100-x8", "dgx1-v100", "gb200-x4", "t4-vm-x1"])
def test_verify_passes_on_a_healthy_machine_in_every_format(gpucheck, tmp_path, profile):
    """A binding that lacks a structure or a function turns up here as UNKNOWN or FAIL."""
    for form in FORMATS:
        gpucheck("verify", "--simulate", profile, "--level", "quick", "--format", form, "-o", form)

    report = json.loads((tmp_path / "json").read_text())
    assert report["verdict"] == "pass"
    assert report["counts"]["pass"] > 15


UNKNOWN = {"collectives", "smoke-ddp", "smoke-transfer"}


def test_verify_without_torch_copies_and_does_not_claim_training(gpucheck):
    report = json.loads(gpucheck("verify", "--simulate", "p100-pcie-x2", "--format", "json", status=3))

    assert set(report["not_proven"]) == {
        f"{what}, torch is not installed" for what in ("training", "collectives between GPUs")
    }
    assert {f["check"] for f in report["findings"] if f["verdict"] == "unknown"} == UNKNOWN
    assert {"p2p-integrity", "p2p-bandwidth"} <= {f["check"] for f in report["findings"] if f["verdict"] == "pass"}


@pytest.mark.parametrize(
    ("words", "status", "shown"),
    [
        ("verify --simulate hgx-h100-x8 --level quick --fault nvlink-down:gpu=2,link=3", 2, "nvlink-down"),
        ("topo --simulate dgx1-v100", 0, "NV2"),
        ("topo --simulate dgx1-v100 --format html", 0, "between 0-1"),
        ("stack resolve --gpu H100 --os ubuntu-22.04 --format json", 0, '"driver"'),
        (f"diagnose {ROOT}/tests/data/bandwidth/nccl-tests.txt --format json", None, "gpucheck.diagnosis/1"),
    ],
)
def test_a_command_prints_what_it_is_for(gpucheck, words, status, shown):
    assert shown in gpucheck(*words.split(), status=status)


def test_a_lock_is_written_and_planned_from(gpucheck, tmp_path):
    (tmp_path / "facts.json").write_bytes(msgspec.json.encode(host("ubuntu-22.04", "p100-pcie-x2")))
    (tmp_path / "stack.yml").write_text("driver: 580\n")
    gpucheck("stack", "lock", "--facts", "facts.json")

    assert "580." in gpucheck("stack", "plan", "--host", "node01")


@pytest.mark.parametrize("profile", ["hgx-h100-x8", "dgx1-v100", "gb200-x4", "a100-mig-x8", "t4-vm-x1"])
def test_nvml_reads_the_same_through_the_lowest_and_the_installed_binding(gpucheck, tmp_path, profile):
    record = ("record", "--simulate", profile, "--no-redact", "-o")
    gpucheck(*record, "lowest.json")
    call([sys.executable, "-m", "gpucheck", *record, tmp_path / "installed.json"])

    lowest, installed = read_recording(tmp_path / "lowest.json"), read_recording(tmp_path / "installed.json")
    assert lowest.nvml == installed.nvml
    assert lowest.nvml is not None
    assert "recorded on" in gpucheck("verify", "--from", "lowest.json", "--level", "quick", status=None)


def test_uv_takes_the_options_of_a_bundle(environment):
    """For every C library that a host may have."""
    code = (
        "import subprocess; from gpucheck.bundle.wheels import KNOWN_GLIBC, Interpreter, compile_words\n"
        "for minor in KNOWN_GLIBC:\n"
        "    words = compile_words(Interpreter(version='3.10', machine='x86_64', glibc=f'2.{minor}'), [])\n"
        "    subprocess.run([*words, '--no-index', '-'], input='', text=True, check=True)"
    )
    call([environment / "bin/python", "-c", code])


def test_ansible_reads_the_playbooks(environment):
    words = [environment / "bin/ansible-playbook", "--syntax-check", "-i", "playbooks/inventory/example"]
    text = call(
        [*words, "playbooks/provision.yml", "playbooks/verify.yml"],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": "playbooks/ansible.cfg",
            "PATH": f"{environment}/bin:{os.environ['PATH']}",
        },
    )
    assert "playbook: playbooks/provision.yml" in text


def test_the_tests_of_the_checks_pass(environment):
    """With pytest at its own floor."""
    words = [environment / "bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    text = call([*words, "tests/checks", "tests/model"], cwd=ROOT)

    assert "[100%]" in text
