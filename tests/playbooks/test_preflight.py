"""Which hosts the preflight refuses, and in which words. All cases are hosts of one run on this machine."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.playbooks.hostile import INTERPRETER, RUNNER, Site, state
from tests.playbooks.planned import PLAN
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play
from tests.shared import made_once

pytestmark = pytest.mark.slow

GIB = 1 << 30
HOST: dict[str, Any] = {
    "busy": [], "secure_boot": False, "rivals": [], "foreign": [], "free_bytes": {}, "kernel": "6.1",
    "archive": None, "headers_missing": [], "refusals": [],
}  # fmt: skip
PLAY = """
- hosts: gpu
  gather_facts: false
  connection: local
  tasks: [{ansible.builtin.include_role: {name: gpucheck.provision.preflight}}]
"""


def case(
    manager: str = "apt", roles: tuple[str, ...] = ("driver",), packages: int = 1, stack: Any = None, **host: Any
) -> dict[str, Any]:
    """Variables of a host. packages: how many of driver and CUDA are still to be installed. stack: of the plan."""
    installing = {"packages": ["x"] * packages}
    return {
        "preflight_plan": {"package_manager": manager, "stack": stack or {}},
        "preflight_state": {
            "differences": {role: ["x"] for role in roles},
            "components": {"driver": installing, "cuda": {"packages": []}},
            "host": {**HOST, **host},
        },
    }


def space(gib: float, *folders: str) -> dict[str, Any]:
    """What plan_state says of one file system."""
    return {"folders": list(folders), "free_bytes": int(gib * GIB)}


SYSTEM = ("/usr", "/usr/local", "/var")
MOK: dict[str, Any] = {"certificate": "/etc/site/mok.der", "missing": [], "enrolled": None, "why": ""}
TORCH = {"torch": {"version": "2.9.0"}}
# At most 20: of more hosts the run tells less.
CASES: dict[str, dict[str, Any]] = {
    "good": case(),
    "el8": case("dnf", platform_python="3.6"),
    "el9": case("dnf", platform_python="3.9"),
    "operator": case(managed=["the GPU Operator runs the driver"]),
    "no-driver": case(roles=("nccl",), secure_boot=True, managed=["the GPU Operator runs the driver"]),
    "secure-boot": case(secure_boot=True),
    "mok-enrolled": case(secure_boot=True, mok={**MOK, "enrolled": True}),
    "mok-not-enrolled": case(secure_boot=True, mok={**MOK, "enrolled": False, "why": "mok.der is not enrolled"}),
    "mok-unknown": case(secure_boot=True, mok={**MOK, "enrolled": None, "why": "mokutil: not found"}),
    "mok-missing": case(secure_boot=True, mok={**MOK, "missing": ["/etc/site/mok.key"]}),
    "leftover": case(foreign=["/usr/lib64/libcuda.so.580.95.05 of no package"]),
    "umad": case(modules_packages=["linux-modules-extra-6.1"], modules_unavailable=[], headers_unavailable=[]),
    "no-umad": case(
        modules_packages=["linux-modules-extra-6.1"],
        modules_unavailable=["linux-modules-extra-6.1"],
        headers_unavailable=[],
    ),
    # /usr 2, /usr/local 8, /var 5 GiB and /boot 300 MiB; with PyTorch 7.5 more on /opt.
    "one-system": case(space=[space(15.4, "/usr", "/usr/local", "/var", "/opt", "/boot")]),
    "one-full": case(space=[space(15.2, "/usr", "/usr/local", "/var", "/opt", "/boot")]),
    "with-torch": case(roles=("driver", "gpucheck"), stack=TORCH, space=[space(15.4, *SYSTEM, "/opt")]),
    "torch-there": case(
        roles=("driver", "gpucheck"), stack=TORCH, requirements_current=True, space=[space(15.4, *SYSTEM, "/opt")]
    ),
    "opt-full": case(roles=("gpucheck",), packages=0, stack=TORCH, space=[space(1, *SYSTEM), space(7.1, "/opt")]),
    "boot-full": case(packages=0, space=[space(1, "/usr"), space(0.2, "/boot")]),
    "nothing-to-install": case(roles=("nccl",), packages=0, space=[space(0, *SYSTEM, "/opt", "/boot")]),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What preflight says of each case."""
    folder = made_once(
        tmp_path_factory, "preflight", lambda folder: (folder / "said").write_text(json.dumps(said(folder, CASES)))
    )
    return dict(json.loads((folder / "said").read_text()))


def said(folder: Path, cases: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What preflight says of each of these hosts, "" where it lets the host through."""
    done = play(folder, PLAY, hosts=cases)
    words = " ".join(done.stdout.split())
    assert next(iter(cases)) in words, done.stdout + done.stderr
    found = {
        name: re.search(
            rf"(?<![\w-]){name}: rejected, nothing was changed: (.*?)(?= \S+: rejected,| PLAY RECAP|$)", words
        )
        for name in cases
    }
    failed = set(re.findall(r"(\S+) +: ok=\d+ +changed=\d+ +unreachable=\d+ +failed=1", words))
    assert failed == {name for name, match in found.items() if match}, done.stdout
    return {name: match.group(1) if match else "" for name, match in found.items()}


@pytest.mark.parametrize(
    "name",
    [
        "good",
        "el9",
        "umad",
        "no-driver",
        "mok-enrolled",
        "one-system",
        "torch-there",
        "nothing-to-install",
    ],
)
def test_hosts_that_nothing_stands_in_the_way_of_go_on(told, name):
    assert told[name] == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("one-full", "15.2 GiB free for /usr, /usr/local, /var, /boot, required 15.3 GiB"),
        ("with-torch", "15.4 GiB free for /usr, /usr/local, /var, /opt, required 22.5 GiB"),
        ("opt-full", "7.1 GiB free for /opt, required 7.5 GiB"),
        ("boot-full", "0.2 GiB free for /boot, required 0.3 GiB"),
    ],
)
def test_space_is_added_up_by_file_system(told, name, words):
    """What is free on one file system counts once, however many folders lie on it."""
    assert words in told[name]


SIGNED = "Secure Boot is on, DKMS would sign with the key of /etc/site/mok.der, and the firmware "


@pytest.mark.parametrize(
    ("name", "begin", "way"),
    [
        ("operator", "the GPU Operator runs the driver.", ""),
        ("leftover", "", "files of no package with rm"),
        # Not known is no yes.
        (
            "secure-boot",
            "Secure Boot is on, and DKMS would sign the module with a key that is not enrolled",
            "set mok in",
        ),
        ("mok-not-enrolled", f"{SIGNED}does not have it enrolled (mok.der is not enrolled). Enroll it (mokutil", ""),
        ("mok-unknown", f"{SIGNED}does not confirm it (mokutil: not found)", ""),
        ("mok-missing", "mok in stack.yml names /etc/site/mok.key, which does not exist on this host", ""),
        ("no-umad", "no package source offers linux-modules-extra-6.1. Without it the kernel has", ""),
        # Also with another interpreter: Ansible's own dnf module has to run in the Python that has dnf's bindings.
        ("el8", "", "dnf's Python bindings, which this host has only for Python 3.6, and ansible-core"),
        ("el8", "", "controller with Python 3.10"),
    ],
)
def test_each_reason_has_its_own_words_and_the_way_out(told, name, begin, way):
    assert told[name].startswith(begin)
    assert way in told[name]
    assert "headers" not in told["no-umad"]


@pytest.mark.more
def test_a_host_whose_python_is_too_old_for_the_controller_is_told_so(tmp_path):
    """What ansible-core 2.19 answers on platform-python 3.6, seen in ansible/ansible#82068. closed: it is sudo."""
    site = Site(tmp_path, {})
    ends = {"old": "SyntaxError: future feature annotations is not defined", "closed": "sudo: a password is required"}
    site.host("good")
    for name, end in ends.items():
        site.host(name)
        python = Path(site.hosts[name]["ansible_python_interpreter"])
        python.write_text(f"#!{sys.executable} -IS\nimport sys\nsys.stdin.read()\nsys.exit('{end}')\n")

    done = site.run("provision.yml", "--check")

    words = " ".join(done.stdout.split())
    assert "old: its Python is too old for ansible-core" in words, done.stdout + done.stderr
    assert "a controller with Python 3.10" in words
    assert "closed: cannot become root as" in words
    assert "Give that login sudo without a password" in words
    assert "closed: its Python is too old" not in words
    assert site.asked("good")[0] == "gpu_facts"


# Hosts whose driver comes from Ubuntu's own archive: Secure Boot needs no key, modules must be there.
MODULES = "linux-modules-nvidia-580-server-open-6.8.0-106-generic"
COMPLETE = {"found": True, "right": True, "path": "/etc/apt/sources.list.d/gpucheck-archive.sources", "content": ""}


def ubuntu(**host: Any) -> dict[str, Any]:
    """Variables of such a host."""
    found = case(**{"archive": COMPLETE, "headers_unavailable": [], **host})
    archive = {"suite": "noble", "distribution": "ubuntu", "components": []}
    nothing = {"repositories": [], "files": [], "services": [], "components": {"driver": {"packages": []}}}
    found["preflight_plan"] |= {**PLAN, **nothing, "kernel_modules": {"pattern": "x-{kernel}"}, "archive": archive}
    return found


# Its gpucheck is installed anew, from a bundle.
NEW = case(roles=("driver", "gpucheck"), python3="3.10.12")
BUNDLE = {"missing": [], "missing_bytes": 0, "free_bytes": 1, "headers": [], "pythons": ["3.10"]}
ON_UBUNTU: dict[str, dict[str, Any]] = {
    "signed": ubuntu(secure_boot=True),
    "mixed": ubuntu(mixed=["nvidia-utils-580 580.95.05-1"]),
    "no-modules": ubuntu(headers_missing=[MODULES], headers_unavailable=[MODULES]),
    # The components are added first, and then there may be some.
    "not-yet": ubuntu(headers_missing=[MODULES], headers_unavailable=[MODULES], archive={**COMPLETE, "right": False}),
    # Ubuntu 20.04, with and without a Python of the site's.
    "focal": {**case(roles=("driver", "gpucheck"), python3="3.8.10"), "preflight_python_minimum": "3.10"},
    "jammy-torch": {
        **case(
            roles=("driver", "gpucheck"), python3="3.10.12", stack={"torch": {"version": "2.15.0", "python": "3.12"}}
        ),
        "preflight_python_minimum": "3.10",
    },
    "jammy": {
        **case(
            roles=("driver", "gpucheck"), python3="3.10.12", stack={"torch": {"version": "2.14.1", "python": "3.10"}}
        ),
        "preflight_python_minimum": "3.10",
    },
    "bundle": {**NEW, "preflight_bundle": BUNDLE},
    "bundle-other": {**NEW, "preflight_bundle": BUNDLE, "gpucheck_python": "python3.12"},
    "bundle-path": {**NEW, "preflight_bundle": BUNDLE, "gpucheck_python": "/opt/site/bin/python"},
    "bundle-plain": {**NEW, "preflight_bundle": {**BUNDLE, "pythons": []}, "gpucheck_python": "python3.12"},
    "focal-3.11": {
        **case(roles=("driver", "gpucheck"), python3="3.8.10"),
        "preflight_python_minimum": "3.10",
        "gpucheck_python": "python3.11",
    },
}


@pytest.fixture(scope="module")
def told_on_ubuntu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What preflight says of each case."""
    return said(tmp_path_factory.mktemp("preflight"), ON_UBUNTU)


@pytest.mark.parametrize("name", ["signed", "not-yet", "focal-3.11", "jammy", "bundle", "bundle-path", "bundle-plain"])
def test_ubuntu_hosts_that_nothing_stands_in_the_way_of_go_on(told_on_ubuntu, name):
    assert told_on_ubuntu[name] == ""


def test_a_python_that_is_too_old_for_gpucheck_is_named_before_the_driver_changes(told_on_ubuntu):
    """After it, the host was drained and had the new driver."""
    assert told_on_ubuntu["focal"].startswith("python3 is 3.8.10, and gpucheck needs 3.10 or newer. Install a newer")
    assert told_on_ubuntu["jammy-torch"].startswith(
        "python3 is 3.10.12, and the torch of the plan needs 3.12 or newer."
    )
    assert "or set torch: auto in stack.yml." in told_on_ubuntu["jammy-torch"]


def test_wheels_of_another_python_are_named_before_the_driver_changes(told_on_ubuntu):
    """pip found none for this Python, on a host that was drained and had the new driver."""
    assert told_on_ubuntu["bundle-other"].startswith(
        "the wheels of the bundle are for Python 3.10, and python3.12 here is 3.12. Set gpucheck_python to an"
    )


def test_a_driver_of_nvidias_repository_has_to_go_first(told_on_ubuntu):
    assert told_on_ubuntu["mixed"].startswith(
        "driver packages of NVIDIA's repository are installed: nvidia-utils-580 580.95.05-1"
    )
    assert "make deprovision" in told_on_ubuntu["mixed"]


def test_a_kernel_without_modules_in_the_archive_is_refused_in_its_own_words(told_on_ubuntu):
    assert told_on_ubuntu["no-modules"].startswith(
        f"no package source offers {MODULES}, which contains the driver's module for"
    )
    assert "headers" not in told_on_ubuntu["no-modules"]


def lacking(what: dict[str, Any], **offered: Any) -> dict[str, Any]:
    """What a host answers whose archive lacks packages of the driver."""
    found = state({"driver": ["nvidia-utils-580-server is not installed"]})
    found["host"].update(archive=COMPLETE, wrong_files=[], space=[], managed=[], **what, **offered)
    return {"plan_state": found}


def test_a_fabric_manager_that_lags_behind_the_driver_is_refused_before_anything_changes(tmp_path):
    """It starts at exactly the driver's version alone; without it CUDA answers 802 where nvidia-smi looks fine."""
    site = Site(tmp_path, {})
    (tmp_path / "stack.yml").write_text("source: ubuntu\ndriver: 580.95.05-0ubuntu0.22.04.2\n")
    behind = "nvidia-fabricmanager-580=580.95.05-0ubuntu0.22.04.2 (offered: 580.82.07-0ubuntu0.22.04.1)"
    site.host("behind", **lacking({"secure_boot": True}, offers_missing=[behind]))
    site.host("unread", **lacking({"secure_boot": True}, offers_unknown="apt-get: exit 100"))

    done = site.run("provision.yml", "--skip-tags", "verify")

    words = " ".join(done.stdout.split())
    assert f"no package source of this host offers {behind}." in words, done.stdout + done.stderr
    assert "wait for it, or set source: nvidia." in words
    assert "have the planned driver: apt-get: exit 100." in words
    assert "Secure Boot" not in words
    assert site.document("reports/provision.json")["hosts"]["behind"]["state"] == "refused"
    assert not {"package_sources", "planned_packages"} & set(site.asked("behind"))


# No program may use the GPUs once the host is drained.
IDLE = """
- hosts: gpu
  connection: local
  gather_facts: false
  vars: {ansible_become: false, preflight_idle_delay_s: 0, preflight_plan: {schema: gpucheck.plan/1}}
  tasks:
    - include_role: {name: gpucheck.provision.preflight, tasks_from: idle.yml}
"""
# By host: the programs, whether the site allows them, and what is said.
PROGRAMS = {
    "free": ([], False, ""),
    "services": (["dcgm-exporter (7)", "nvidia-device-p (8)"], False, ""),
    "allowed": (["python (9)"], True, ""),
    "busy": (["dcgm-exporter (7)", "python (9)"], False, "these programs still use the GPUs: python (9). No package"),
}


@pytest.fixture(scope="module")
def idle(tmp_path_factory):
    """What a run over all of them says."""
    folder = tmp_path_factory.mktemp("idle")
    hosts = {}
    for name, (busy, allowed, _) in PROGRAMS.items():
        (folder / name).mkdir()
        answer = state({})
        answer["host"]["busy"] = busy
        (folder / name / "answers.json").write_text(json.dumps({"*": {"changed": False, **answer}}))
        python = script(folder / name / "python", INTERPRETER.format(python=sys.executable, runner=RUNNER))
        hosts[name] = {"ansible_python_interpreter": python, "preflight_allow_busy_gpus": allowed}
    return " ".join(play(folder, IDLE, hosts=hosts).stdout.split())


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_gpus_after_the_drain_stop_the_change(idle, name):
    reason = PROGRAMS[name][2]

    assert f"{name} : ok=" in idle
    assert (f"[{name}]: FAILED!" in idle) is (f"{name}: {reason}" in idle) is bool(reason), idle
