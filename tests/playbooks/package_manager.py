"""A host's package manager, as module planned_packages drives it, for tests."""

import copy

import pytest

from tests.playbooks.modules import answer_of, module, programs, shared

task = module("planned_packages")
calls = shared("call")
apt, dnf, running = shared("apt"), shared("dnf"), shared("running")

NOTHING: dict[str, list[str]] = {"packages": [], "missing": [], "stale": []}
HOST = {
    "unfinished": [],
    "superfluous": [],
    "strays": [],
    "unplanned": {"installed": [], "held": []},
    "versionlock": True,
    "module_stream": None,
    "module_stream_planned": True,
    "prerequisites_missing": [],
    "compilers_missing": [],
    "library_lost": False,
}
ROWS = {
    "driver": [{"name": "driver", "version": "2-1", "spec": "driver=2-1"}],
    "cuda": [
        {"name": "toolkit", "version": "12-1", "spec": "toolkit=12-1"},
        {"name": "newest", "version": None, "spec": "newest"},
    ],
}


class Machine:
    """A host's package manager as the module drives it: .calls, .broken is what it refuses; .installed and .locks."""

    def __init__(self, folder):
        self.calls, self.broken, self.installed, self.folder = [], "", {}, folder
        self.state = {"components": {name: dict(NOTHING) for name in ROWS}, "host": copy.deepcopy(HOST)}
        self.lock_file = folder / "versionlock.list"
        self.lost = False
        # What simulations and downloads were asked, and what a simulation reports.
        self.simulated, self.fetched, self.moves, self.sizes = [], [], "", ""
        # Programs that have a deadline.
        self.bounded = []
        # Called before each program, with the options of the call.
        self.watch = lambda how: None

    def run_command(self, argv, **how):
        self.watch(how)
        if argv[0] == "timeout":
            argv, self.bounded = argv[3:], [*self.bounded, argv[3]]
        if argv[:2] == ["dpkg", "--compare-versions"]:
            return (0 if argv[2] < argv[4] else 1), "", ""
        if "--print-uris" in argv:
            return 0, self.sizes, ""
        if "--simulate" in argv or "--assumeno" in argv:
            self.simulated.append(argv)
            return (0, self.moves, "") if argv[0] == "apt-get" else (1, self.moves, "Operation aborted.\n")
        if "--download-only" in argv or "--downloadonly" in argv:
            self.fetched.append(argv)
            return (100, "", "E: 404 Not Found\n") if self.broken == "download" else (0, "", "")
        verb = next((word for word in argv[1:] if word in VERBS), argv[-1])
        self.calls.append(" ".join([argv[0], verb, *argv[argv.index(verb) + 1 :]]) if len(argv) > 1 else argv[0])
        if self.broken and self.broken in self.calls[-1]:
            return 1, "", "noise\nE: not to be had\n"
        return 0, "", ""

    def locks(self):
        return self.lock_file.read_text().splitlines() if self.lock_file.exists() else []


VERBS = ("install", "remove", "hold", "unhold", "reinstall", "module", "--configure", "--erase")


@pytest.fixture(name="machine")
def package_machine(tmp_path, monkeypatch):
    found = Machine(tmp_path)
    read = {"kernels": ["6.1"], "holds": []}, {"packages": found.installed, "locks": []}
    programs(monkeypatch, found.run_command)
    monkeypatch.setattr(task, "read_facts", lambda _: read)
    monkeypatch.setattr(task, "compare", lambda *_: found.state)
    monkeypatch.setattr(apt, "dpkg_packages", lambda: (found.installed, [], []))
    monkeypatch.setattr(calls, "package_locks", lambda _: [])
    monkeypatch.setattr(running, "library_lost", lambda: found.lost)
    lock_versions = dnf.lock_versions
    monkeypatch.setattr(
        dnf, "lock_versions", lambda module, add=(), drop=(): lock_versions(module, add, drop, str(found.lock_file))
    )
    return found


def go(manager, machine, *components, check_mode=False, **options):
    stream = {"module": "nvidia-driver", "stream": "580-open"} if manager == "dnf" else None
    parts = {name: {"packages": rows, "holds": [row["name"] for row in rows]} for name, rows in ROWS.items()}
    plan = {"package_manager": manager, "components": parts, "module_stream": stream}
    params = {"host": "node01", "plan": plan, "components": list(components or ("driver", "cuda")), **options}
    return answer_of(task, params, check_mode)


def missing(machine, component="driver"):
    machine.state["components"][component] = {**NOTHING, "packages": [f"{component} is not installed"]}
