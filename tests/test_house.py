"""The house keeps its shape: arrows between the rooms point down, and heavy packages stay behind functions."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from gpucheck.diagnose.suspects import BY_DESIGN
from gpucheck.knowledge import causes
from gpucheck.knowledge.codes import rows

PACKAGE = Path(__file__).parent.parent / "gpucheck"

# Room -> the rooms it may import. Kept by hand on purpose: a new arrow is a decision.
MAY_IMPORT = {
    "printable": set(),
    "model": set(),
    "foreign": set(),
    "knowledge": {"model", "foreign"},
    "processes": set(),
    "host": {"model", "knowledge", "foreign", "processes"},
    "imports": {"model", "knowledge", "foreign"},
    "isolate": {"model", "knowledge", "foreign", "processes"},
    "topology": {"model", "knowledge"},
    "stack": {"model", "knowledge", "foreign"},
    "repositories": {"knowledge", "foreign", "processes", "stack"},
    "bundle": {"model", "knowledge", "foreign", "processes", "stack", "repositories"},
    "train": {"model", "knowledge", "processes"},
    "measure": {"model", "knowledge", "imports", "processes", "topology", "host"},
    "compute": {"model", "knowledge", "processes", "host", "measure"},
    "diagnose": {"model", "knowledge", "topology", "checks", "foreign"},
    "checks": {"model", "knowledge", "topology"},
    "simulator": {"model", "knowledge", "foreign", "processes", "host", "topology", "measure", "compute"},
    "lab": {"model", "knowledge", "processes", "simulator"},
    "images": {"model", "knowledge", "host", "stack", "checks", "lab", "foreign", "processes"},
    "fleet": {"model", "knowledge", "foreign"},
    "comparison": {"model", "knowledge", "stack", "checks", "foreign"},
    "run": {
        *("model", "knowledge", "processes", "host", "imports", "topology", "stack", "train", "measure"),
        *("diagnose", "checks", "compute"),
    },
    "render": {"model", "knowledge"},
}
# Below all of them: what no output may do without.
BELOW_ALL = {"printable"}
VERSION = {"__version__"}  # of gpucheck/__init__.py
HEAVY = {"torch", "tensorflow", "cupy", "cuda", "docker", "ansible", "numpy"}


def rooms() -> list[str]:
    return sorted(p.stem for p in PACKAGE.iterdir() if not p.name.startswith("_") and p.suffix in ("", ".py"))


def sources(room: str) -> list[Path]:
    path = PACKAGE / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def parsed(source: Path) -> ast.Module:
    return ast.parse(source.read_text(encoding="utf-8"))


def statements(node: ast.AST, *, types: bool) -> Iterator[ast.AST]:
    """Every statement below the node. types: also those that only a type checker reads."""
    left = [node]
    while left:
        one = left.pop()
        for child in (child for part in BLOCKS for child in getattr(one, part, ())):
            if types or not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
                yield child
                left.append(child)


def imported(source: Path, *, top_level_only: bool) -> Iterator[str]:
    tree = parsed(source)
    for node in tree.body if top_level_only else statements(tree, types=True):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("room", [room for room in rooms() if room != "cli"])
def test_arrows_point_down(room):
    """A room imports only the rooms below it; only the command line may import all."""
    assert room in MAY_IMPORT, f"gpucheck/{room} is new: say in MAY_IMPORT which rooms it may import"
    for source in sources(room):
        used = {name.split(".")[1] for name in imported(source, top_level_only=False) if name.startswith("gpucheck.")}
        wrong = used - MAY_IMPORT[room] - BELOW_ALL - VERSION - {room}
        assert not wrong, f"{source.relative_to(PACKAGE.parent)} imports {', '.join(sorted(wrong))}"


def module(source: Path) -> str:
    return ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


FOLDERS = [module(source) for room in rooms() for source in sources(room) if source.stem == "__init__"]


@cache
def used_modules(room: str) -> dict[str, set[str]]:
    """Return the modules of the room that each of its modules imports."""
    modules = {module(source): source for source in sources(room)}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, source in modules.items():
        for node in statements(parsed(source), types=False):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= full & modules.keys() or {node.module}
        graph[name] = (graph[name] & modules.keys()) - {name}
    return graph


@pytest.mark.parametrize("room", rooms())
def test_modules_of_a_package_have_no_import_cycle(room):
    """Imports inside functions count too. Not counted: modules found by walking, and the parents of a module."""
    TopologicalSorter(used_modules(room)).prepare()  # CycleError names the modules


@pytest.mark.parametrize("folder", FOLDERS)
def test_parts_of_a_folder_have_no_import_cycle(folder):
    """A part is a module of the folder, or a whole folder in it."""
    graph: dict[str, set[str]] = {}
    for name, used in used_modules(folder.split(".")[1]).items():
        if name.startswith(f"{folder}."):
            part, *others = (
                one[len(folder) + 1 :].split(".")[0] for one in (name, *used) if one.startswith(f"{folder}.")
            )
            graph.setdefault(part, set()).update(set(others) - {part})

    TopologicalSorter(graph).prepare()  # CycleError names the parts


def test_heavy_packages_are_imported_inside_functions():
    """``gpucheck --help`` and ``gpucheck topo`` must not pay for torch, docker or ansible."""
    for source in sorted(PACKAGE.rglob("*.py")):
        heavy = {name.split(".")[0] for name in imported(source, top_level_only=True)} & HEAVY
        assert not heavy, f"{source.relative_to(PACKAGE.parent)} imports {heavy} at the top"


def test_only_one_place_prints_to_stderr():
    """note() and failure() escape and bound what they print; a report that was interrupted is made of views."""
    may = {"_shared/common.py", "_shared/failure.py", "_shared/shown.py"}
    for source in sources("cli"):
        calls = (node for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        name = source.relative_to(PACKAGE / "cli").as_posix()
        direct = [call.lineno for call in calls if any(keyword.arg == "err" for keyword in call.keywords)]
        assert not direct or name in may, f"{name}:{direct} prints to stderr: use note() of _shared.common"


def test_commands_return_no_verdict_of_their_own():
    """Findings come from checks, run, diagnose and comparison; a command only prints them."""
    keys = {key for key in causes() if "-" in key}  # a single word such as xid is a word of the field as well
    for source in sources("cli"):
        nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
        made = {ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)}
        named = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        assert not made & {"Finding", "About"}, f"{source.name} constructs a finding"
        assert not named & keys, f"{source.name} names a cause: {named & keys}"


# Rooms that evaluate what was read of a host. The others measure it, train on it or compare it with something else.
READING = ("checks", "diagnose", "imports", "run", "topology")
# Rules of what was measured, which may confirm a cause that is read as well.
MEASURED = ("compute", "training", "collectives")
# Causes that are reported by several of their modules, and why.
SEVERAL = {
    "arch-not-in-build": "smoke repeats the finding of the stack check with the build to install",
    "container-runtime": "the driver check: without the runtime NVML's library is not in the container",
    "data-corruption": "by path: copies between GPUs, and an all_reduce through one network card",
    "device-node-missing": "the driver and the inventory check: what cannot be reached without the file",
    "driver-mismatch": "the stack check compares the module with the plan, the driver check with the library",
    "driver-not-loaded": "next-boot knows why a module will not be loaded",
    "fabric-manager-down": "a return code of CUDA (802), where nothing else was read",
    "false-p2p-grant": "a return code of CUDA (217), where nothing else was read",
    "gpu-lost": "the driver check: NVML does not start, so that there is no inventory",
    "host-resources": "by what lacked them: the child that asks NVML, the children that copy",
    "imex-down": "its service and channels, and what the driver refused to share",
    "iommu-translation": "a rate that no healthy path has, where nothing else was read",
    "library-mismatch": "by library: the plan, the wheels, the loader; smoke repeats the finding of the wheels",
    "mig-enabled": "p2p-status is not applicable to GPUs with MIG",
    "module-flavour-wrong": "the driver check: why it is not loaded; the stack check compares with the plan",
    "nic-driver": "by evidence: what the driver reports of a card now, and a port that leaves during the run",
    "nic-slow": "by evidence: what perftest moves, and what NCCL does through a card",
    "nvlink-down": "by evidence: the ports, the health of the fabric, denied access over active links",
    "rdma-unavailable": "by what is not usable: a card without a device, a way to GPU memory, a file or a library",
    "rebar-off": "p2p-status: why the driver denies access",
    "wedged-driver": "a copy that hangs, where NVML still answers",
}


def test_a_cause_is_reported_by_one_module():
    """By the codes of the catalogue that a module names; a limit that is by design is no fault."""
    named = {name: row.cause for name, row in rows() if row.cause and row.cause not in BY_DESIGN}
    found: dict[str, set[str]] = {}
    for source in (source for room in READING for source in sources(room)):
        if source.parent.name in MEASURED and source.parent.parent.name == "checks":
            continue
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.Constant) and node.value in named:
                found.setdefault(named[node.value], set()).add(module(source))

    assert {cause: modules for cause, modules in found.items() if len(modules) > 1 and cause not in SEVERAL} == {}
    assert {cause for cause in SEVERAL if len(found[cause]) < 2} == set(), "in one module by now"


def test_help_loads_no_command():
    """The help line of a command comes from its source, not from importing it."""
    code = (
        "import sys; from gpucheck.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('gpucheck.cli.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"
    assert "verify" in done.stdout
