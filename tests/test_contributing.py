"""The recipes of CONTRIBUTING.md: each adds one more in a temporary directory, and nothing else has to change."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest
import yaml

from gpucheck import imports
from gpucheck.host.live import NAMED, READERS
from gpucheck.images.versions import FILE as IMAGES
from gpucheck.images.versions import read_versions
from gpucheck.model.facts import BY_NAME, MEASURED, Facts
from release import image_versions
from tests.cli.commands import run
from tests.diagnose.results import diagnosed, named
from tests.fakes import facts

ROOT = Path(__file__).parent.parent

CHECK = '''"""Demo: how many GPUs are there?

Source: NVML.
"""
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check


def evaluate(facts):
    yield Subject(check="demo-count").passes(len(facts.nvml.gpus))


CHECK = Check("demo-count", frozenset({"quick"}), evaluate=evaluate, needs=("nvml",))
'''
FAULT = '''"""Demo: the shared memory of a container with one more setting."""
from gpucheck.simulator.faults import fault


@fault("shared memory of 1 MiB")
def demo_fault(machine):
    machine.surroundings |= {"shm_bytes": 1 << 20, "shm_free_bytes": 1 << 20}
'''
KIND = '''"""demotool: states how it looks."""
from gpucheck.imports import Kind
from gpucheck.model.paste import Part

KIND = Kind(
    name="demo-tool",
    title="the output of demotool",
    parse=lambda lines: Part(looked_at=("the demo of demotool",)),
    hints=("demotool:",),
    line=lambda line: line.startswith("demotool:"),
)
'''
DEMO_COMPONENT = '''"""Demo: a component at the driver's version."""
from gpucheck.stack.components.base import SYSTEM, Component
from gpucheck.stack.packages import at_driver_version, component


class Demo(Component):
    name, title, part, nvidia = "demo_part", "demo", "driver", SYSTEM
    place, turn, default, optional, follows = 86, 86, "none", True, "the driver"

    def choose(self, choice):
        return choice.settle((choice.driver.version, ()), choice.spec.demo_part)

    def packages(self, plan):
        return component([at_driver_version(plan.system, plan.stack, "demo-package")])


COMPONENT = Demo()
'''
# One more directory of components: argv[1].
WITH_COMPONENTS = """
import sys
from importlib.machinery import PathFinder

class Finder:
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target) if name == "gpucheck.stack.components" else None
        if spec:
            spec.submodule_search_locations.append(sys.argv[1])
        return spec

sys.meta_path.insert(0, Finder())
"""
RESOLVED = """
from gpucheck.cli import main
main(["stack", "resolve", "--gpu", "T4", "--os", "ubuntu-22.04", "--want", "demo_part=auto"])
"""
PLANNED = """
from gpucheck.stack import wants
from tests.stack.asked import planned
print(planned(wants(("demo_part=auto",)), "ubuntu-22.04", "t4-x1").components["driver"]["packages"])
"""


@pytest.fixture
def added(tmp_path, monkeypatch, cache):
    """Add a module to a package as if its file were there; forget it afterwards."""

    def add(package, name, text):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        home = import_module(package)
        monkeypatch.setattr(home, "__path__", [*home.__path__, str(tmp_path)])
        forget()

    def forget():
        imports.all_kinds.cache_clear()

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    before = set(sys.modules)
    yield add
    monkeypatch.undo()
    for name in [name for name in sys.modules if name not in before and ".demo_" in name]:
        del sys.modules[name]
    forget()


def test_check_is_one_module(added, capsys):
    added("gpucheck.checks", "demo_count", CHECK)

    assert "demo-count" in run(capsys, "explain")[1]
    assert "how many GPUs" in run(capsys, "explain", "demo-count")[1]
    status, out, err = run(capsys, "verify", "--simulate", "p100-pcie-x2", "--only", "demo-count", "-v")
    assert (status, err) == (0, "")
    assert "demo-count" in out


def test_fault_is_one_function(added, capsys):
    added("gpucheck.simulator.faults", "demo_fault", FAULT)

    assert "demo-fault" in run(capsys, "profiles")[1]
    machine = ("--simulate", "p100-pcie-x2", "--fault", "demo-fault")
    assert run(capsys, "verify", *machine, "--only", "shared-memory")[0] == 2


def test_kind_is_one_module(added, capsys, tmp_path):
    added("gpucheck.imports", "demo_tool", KIND)
    (tmp_path / "paste.txt").write_text("$ demotool\ndemotool: all is well\n", encoding="utf-8")

    assert "demo-tool" in run(capsys, "diagnose", "--kinds")[1]
    _, out, err = run(capsys, "diagnose", "-v", str(tmp_path / "paste.txt"))
    assert not err
    assert "demo-tool" in out


def test_suspect_is_one_row(tmp_path, monkeypatch):
    """A pattern in knowledge/suspects.yml with one more cause; no reading changes it."""
    text = (ROOT / "gpucheck/knowledge/suspects.yml").read_text(encoding="utf-8")
    listed = yaml.safe_load(text)["patterns"]
    row = {name: tuple(causes) for name, causes in listed.items()} | {
        "one-gpu-quarter": ("throttled", *listed["one-gpu-quarter"])
    }
    monkeypatch.setattr("gpucheck.diagnose.suspects.suspects_of", row.__getitem__)
    grid = [[None, 6.0, 6.0], [6.0, None, 24.0], [6.0, 24.0, None]]
    seen = {"gpus": {"count": 3, "model": "NVIDIA L40S"}, "p2p_access": "all", "measured": {"p2p_uni_gb_s": grid}}

    assert "throttled" in named(diagnosed(seen))


def test_component_is_one_module(tmp_path):
    """The specification, the set, the plan and their texts have it without another line of code."""
    (tmp_path / "demo_part.py").write_text(DEMO_COMPONENT, encoding="utf-8")

    def printed(code):
        words = [sys.executable, "-c", WITH_COMPONENTS + code, tmp_path]
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "demo " in printed(RESOLVED)
    assert "demo-package" in printed(PLANNED)


def test_image_is_one_row(tmp_path):
    """The versions, the code and the driver of the new row come from the resolver, the lock from the next command."""
    (tmp_path / "images").mkdir()
    rows = yaml.safe_load((ROOT / IMAGES).read_text(encoding="utf-8"))
    row = rows["variants"]["torch-cu132"]
    rows["variants"]["torch-demo"] = {**row, "spec": {"gpus": ["Tesla P100-PCIE"]}}
    (tmp_path / IMAGES).write_text(yaml.safe_dump(rows), encoding="utf-8")

    filled = image_versions.fill(read_versions(tmp_path), tmp_path).variants["torch-demo"].filled

    assert "sm_60" in filled.code


def test_nvml_release_is_rows_of_a_table(tmp_path, monkeypatch):
    """A new function needs no C code: the library exports it and responds as the row states."""
    exports = import_module("gpucheck.simulator.nvml.library")
    table = tmp_path / "exports.txt"
    table.write_text(exports.TABLE.read_text(encoding="utf-8") + "nvmlDeviceGetDemo 999 device\n", encoding="utf-8")
    monkeypatch.setattr(exports, "TABLE", table)
    exports.all_exports.cache_clear()
    try:
        new, old = exports.exports("999.10"), exports.exports("580.95")
    finally:
        exports.all_exports.cache_clear()

    assert "nvmlDeviceGetDemo" in exports.version_script(new)
    assert "DEVICE(nvmlDeviceGetDemo)" in exports.unsimulated_rows(new)
    assert "nvmlDeviceGetDemo" not in exports.version_script(old)


def test_fact_is_a_field_and_its_reader():
    """A step of a run measures the others."""
    parts = {name for name in Facts.__struct_fields__ if getattr(Facts(), name) is msgspec.UNSET}.difference(MEASURED)

    assert READERS.keys() == parts
    assert {*NAMED, "library"} == BY_NAME.keys()
    assert facts().missing(parts) == []
