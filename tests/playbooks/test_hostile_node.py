"""A hostile host takes nothing with it: not the controller, not its neighbours, not the run.

Each of these hosts returns what once ran a program on the controller, wrote a file there, or stopped the other hosts.
"""

import json
import re
from itertools import product
from typing import Any

import pytest

from tests.playbooks.hostile import MISSING, Site, facts, honest, report, spoilt, state
from tests.playbooks.ssh_host import METHODS

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Written by whatever a host gets to run on the controller.
CANARY = "CANARY"
ESCAPES = "\x1b[2J\x1b]0;title\x07\x1b[31mFAKE\ngood  unchanged  0\u202e"
KEY = "x\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFake attacker\ny"
PIPE = "{{ lookup('pipe', 'touch CANARY') }}"
HOLDER = {"id": "a", "controller": "ctl", "user": "u", "pid": 1, "ticks": "1", "place": "", "started": "now",
          "playbook": "provision.yml"}  # fmt: skip
BAD = ("unreachable", "refused", "stopped", "failed")


def read(**changes: Any) -> dict[str, Any]:
    """What gpu_facts returns, with more or other fields."""
    back = {"schema": "gpucheck.plan/1", "group": "g", "package_manager": "apt", "repositories": [], "stack": {},
            "components": {}, "files": []}  # fmt: skip
    sound = {"changed": False, "facts": facts("x"), "recorded": "", "requirements": "", "state": {},
             "clock_ahead_s": 0, "python": "3.11.2", "plan": back, "way_back": back}  # fmt: skip
    return {**sound, **changes}


def other(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """What gpu_facts returns, with one place of its facts changed."""
    return read(facts=spoilt(facts("x"), path, value))


def run_this(folder: str) -> dict[str, Any]:
    """Variables that have the controller run a program, if a host can set them."""
    command = ["/bin/sh", "-c", f"touch {folder}/{CANARY}", "x"]
    return {"drain_with": "script", "drain_command": command, "stack_lock": f"{folder}/home/authorized_keys2",
            "build_dir": f"{folder}/evil", "gpucheck_controller_executable": f"{folder}/evil/gpucheck",
            "rollout_tasks": f"{folder}/out/reports/c2-tasks-in-report.json"}  # fmt: skip


def hostile(folder: str) -> dict[str, dict[str, Any]]:
    """By host, what it returns to single modules. The first is the host that the site's values are read from."""
    evil, plan = run_this(folder), state({"driver": ["the driver is missing"]})
    tasks = json.dumps([{"hosts": "x"}, {"ansible.builtin.command": f"touch {folder}/{CANARY}"}])
    package = {"name": "a", "version": "1", "arch": "amd64", "file": "libnccl2.deb", "sha256": "0" * 64, "bytes": 3}
    bundled = {"changed": False, "packages": [package], "not_offered": [], "modules": [], "metadata": [], "python": {}}
    cases: dict[str, dict[str, Any]] = {
        "c3-facts-of-first": {"gpu_facts": {**other(("stand_ins",), [KEY]), "ansible_facts": evil}},
        "c1-facts-drain": {"gpu_facts": read(ansible_facts=evil)},
        "c1-plan-drain": {"plan_state": {**plan, "ansible_facts": evil}},
        "c1-record-drain": {"install_record": {"changed": False, "ansible_facts": evil}},
        "c1-builtin-drain": {"*": {"changed": False, "rc": 0, "stdout": "", "ansible_facts": evil}},
        "c1-facts-list": {"gpu_facts": read(ansible_facts=["x"])},
        "c2-tasks-in-report": {"gpu_verify": {"changed": False, "status": 0, "report": tasks, "ansible_facts": evil}},
        "c3-stand-ins": {"gpu_facts": other(("stand_ins",), [KEY])},
        "c4-modules": {
            "bundle_packages": {**bundled, "modules": ["../../../../../PWNED"]},
        },
        "c4-metadata": {"bundle_packages": {**bundled, "metadata": ["../../../../../PWNED", f"{folder}/evil/PWNED"]}},
        "c4-absolute": {"bundle_packages": spoilt(bundled, ("packages", 0, "file"), f"{folder}/evil/PWNED")},
        "c5-up": {"gpu_facts": other(("host",), "../../../../evil/pwn")},
        "c5-absolute": {"gpu_facts": other(("host",), f"{folder}/evil/pwn")},
        "c6-neighbour": {"gpu_facts": other(("host",), "good")},
        "c6-dot": {"gpu_facts": other(("host",), "./good")},
        "h1-report-of-neighbour": {"gpu_verify": {"changed": False, "status": 0, "report": json.dumps(report("good"))}},
        "h5-group-escapes": {"gpu_facts": read(recorded_set={"group": ESCAPES, "stack": {}})},
        "h5-unreachable": {"gpu_facts": {**read(), "unreachable": True, "msg": ESCAPES}},
        "h5-unreachable-list": {"gpu_facts": {**read(), "unreachable": ["x"], "msg": {"a": 1}}},
        "h5-failed-msg": {"gpu_facts": {"failed": True, "msg": ESCAPES}},
        "h5-add-host": {"gpu_facts": read(add_host={"host_name": "good", "host_vars": evil, "groups": ["gpu"]})},
        "h5-warnings": {"gpu_facts": read(warnings=[ESCAPES], deprecations="x", exception=ESCAPES, diff=[1])},
        "h5-words-escapes": {"plan_state": state({"driver": [ESCAPES], "x": ["{{ 1 }}"]})},
        "h5-template": {"plan_state": state({"nccl": ["{{ lookup('pipe', 'touch " + folder + "/CANARY') }}"]})},
        "h5-dots": {"gpu_facts": {"failed": True, "msg": "sudo", "module_stderr": "." * 3_900_000 + "x"}},
        "h5-failed-with-dest": {"gpu_verify": {"failed": True, "msg": "x", "dest": "/nowhere"}},
        "h5-bytes": {"planned_packages": {**honest("x", 0, {})["planned_packages"], "download_bytes": 10**400}},
        "h5-drip": {"plan_state": "DRIP"},
        "h5-no-json": {"gpu_facts": f"no JSON {ESCAPES}"},
        "m12-holder-words": {"host_lock": {"changed": False, "run": "x", "holder": dict.fromkeys(HOLDER, ESCAPES)}},
        "m12-holder-part": {"host_lock": {"changed": False, "run": "x", "holder": {"id": "x"}}},
        "m12-holder-lives": {"host_lock": {"changed": False, "run": "x", "holder": {**HOLDER, "user": ESCAPES}}},
        "m12-holder-facts": {"host_lock": {"changed": False, "run": PIPE, "holder": None, "ansible_facts": evil}},
        "h5-way-back-tree": {"gpu_facts": read(way_back={**read()["way_back"], "group": "../../reports/good"})},
    }
    for name, value in {"text": "x", "number": 5, "list": ["x"], "group": {"group": 5, "stack": {}}}.items():
        cases[f"h5-recorded-set-{name}"] = {"gpu_facts": read(recorded_set=value)}
    torch = {"repositories": [{"name": "gpucheck-bundle"}], "stack": {"torch": {"origin": "index"}}, "group": "g"}
    for name, value in {"text": "x", "list": [1], "torch": torch, "rows": {**torch, "repositories": 3}}.items():
        cases[f"h5-way-back-{name}"] = {"gpu_facts": read(way_back=value)}
    for name, value in {"text": "abc", "list": ["x"], "rows": {"driver": "abc"}, "deep": {"driver": [["x"]]}}.items():
        cases[f"h5-differences-{name}"] = {"plan_state": {**plan, "differences": value}}
    for name, path, value in [
        ("type", ("gpus",), "many"), ("schema", ("schema",), "gpucheck.facts/9"), ("nul", ("host",), "a\x00b"),
        ("slash", ("kernel",), "../../x"), ("long", ("kernel",), "k" * 5000), ("surrogate", ("os", "name"), "\ud800"),
        ("os", ("os",), None), ("no-gpus", ("gpus",), MISSING), ("lot", ("gpus",), [facts("x")["gpus"][0]] * 9000),
    ]:  # fmt: skip
        cases[f"h5-facts-{name}"] = {"gpu_facts": other(path, value)}
    for name, text in {"list": "[]", "text": "x", "deep": "[" * 100_000, "surrogate": '{"host": "\ud800"}'}.items():
        cases[f"h5-report-{name}"] = {"gpu_verify": {"changed": False, "status": 0, "report": text}}
    cases["h5-report-type"] = {"gpu_verify": {"changed": False, "status": 0, "report": ["list"]}}
    return cases


SAMPLE = ("c3-facts-of-first", "c1-facts-drain", "h5-dots", "h5-bytes", "c5-up", "c6-neighbour",
          "h5-differences-text", "h5-facts-schema")  # fmt: skip
# What each playbook has a host run, and the others do not.
MODULES = {
    "check": {"gpu_facts", "plan_state", "planned_packages"},
    "provision": {"host_lock", "install_record", "gpu_verify", "*"},
    "verify": {"gpu_verify"},
    "rollback": {"install_record"},
    "bundle": {"bundle_packages"},
}
RUNS = {
    "check": ("provision.yml", "--check", "--diff", "-e", "compare_timeout_s=60"),
    # The hostile hosts fail, all of them: that is no reason to leave out the honest one.
    "provision": ("provision.yml", "-e", "max_failing_percent=100"),
    "verify": ("verify.yml",),
    "rollback": ("rollback.yml", "-e", "max_failing_percent=100"),
    "bundle": ("bundle.yml", "-e", "bundle_output=bundle"),
}


@pytest.fixture(scope="module")
def sound():
    """A report, made once."""
    return report("good")


# Files travel in these two alone.
WAYS = [*((kind, "sftp") for kind in ("check", "verify", "rollback")), *product(("provision", "bundle"), METHODS)]


def ran(folder, sound, kind, method, chosen, **environment):
    """One playbook over the chosen hostile hosts and an honest one, by SSH; and over the honest one alone."""
    both = []
    for name, hosts in (("all", chosen), ("alone", {})):
        (folder / name).mkdir()
        site = Site(folder / name, sound, apart=kind == "bundle", method=method)
        for host, answers in hosts.items():
            site.host(host, **answers)
        site.host("good", **({"gpu_facts": read(facts=facts("good", 80))} if kind == "bundle" else {}))
        both.append((site, site.run(*RUNS[kind], **environment)))
    return both


def outcome(site, kind):
    """What became of the honest host, as files say."""
    found = {}
    for name in ("build/plans/good.json", "build/way-back/good.json", "reports/good.json"):
        if (site.folder / "out" / name).exists():
            found[name] = site.document(name)
    if (site.folder / "out/reports/provision.json").exists():
        row = site.document("reports/provision.json")["hosts"]["good"]
        found["row"] = {key: value for key, value in row.items() if key != "seconds"}
    if kind == "bundle":
        # Each host is in a group of its own, so its files are those of its group.
        found["asked"] = site.asked("good")
    return found


def held(both, kind):
    """What holds after every run with hostile hosts."""
    (site, done), (alone, single) = both
    said = done.stdout + done.stderr
    assert not site.stray(), "written outside of the run's folders"
    assert not list(site.folder.rglob(CANARY)), "a program ran on the controller"
    assert not CONTROL.search(said), ascii(CONTROL.search(said))
    assert "Traceback" not in said
    assert single.returncode == 0, single.stdout + single.stderr
    assert done.returncode == (2 if failures(said) or kind in ("verify", "bundle") else 0), said[-3000:]
    assert outcome(site, kind) == outcome(alone, kind)
    rows(site, kind, said)


def failures(said):
    """Whether the table names a host that stopped."""
    return re.search(rf"(?m)^[0-9]+ hosts: .*({'|'.join(BAD)})", said) is not None


def rows(site, kind, said):
    """Exactly one row a host, wherever there is a table."""
    table = said[said.rindex("\nhost  ") :] if "\nhost  " in said else ""
    if kind in ("check", "provision", "rollback"):
        lines = [line.split()[0] for line in table.splitlines()[2:] if line and not line.startswith(" ")]
        few = len(site.hosts) <= 20
        named = [name for name in lines if name in site.hosts]
        assert len(named) == len(set(named))
        assert not few or sorted(named) == sorted(site.hosts)
        assert f"\n{len(site.hosts)} hosts: " in table, table
    if kind in ("provision", "rollback"):
        assert sorted(site.document("reports/provision.json")["hosts"]) == sorted(site.hosts)
    if kind in ("provision", "verify", "rollback"):
        merged = {row["host"]: row for row in site.document("build/fleet.json")["hosts"]}
        assert sorted(merged) == sorted(site.hosts)
        assert merged["good"]["verdict"] == "pass"


@pytest.mark.slow
def test_a_sample_of_hostile_hosts_takes_nothing_with_it(tmp_path, sound):
    """provision --check, which make plan runs: it changes nothing anywhere."""
    cases = hostile(str(tmp_path / "all"))

    held(ran(tmp_path, sound, "check", "sftp", {name: cases[name] for name in SAMPLE}), "check")


@pytest.mark.more
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), WAYS)
def test_no_hostile_host_takes_anything_with_it(tmp_path, sound, kind, method):
    """Every takeover and every stop that was once seen, in one inventory, in every playbook."""
    cases = hostile(str(tmp_path / "all"))
    chosen = {
        name: answers
        for name, answers in cases.items()
        if name in SAMPLE or (kind == "rollback" and "way-back" in name) or MODULES[kind] & set(answers)
    }

    held(ran(tmp_path, sound, kind, method, chosen), kind)
