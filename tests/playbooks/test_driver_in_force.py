"""Modules and services in one round trip: only what is due, in order; where one fails, its words and what helps."""

from types import SimpleNamespace

import pytest

from tests.playbooks.modules import answer_of, module, programs, shared

task = module("driver_in_force")
states = shared("running")

UP = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}
DOWN = {"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "disabled"}
FAILED = {**DOWN, "ActiveState": "failed"}


def row(name, enabled=True, state="started"):
    return {"name": name, "enabled": enabled, "state": state}


@pytest.mark.parametrize(
    ("planned", "seen", "how", "calls"),
    [
        (row("a"), UP, {}, []),
        (row("a"), DOWN, {}, [["enable", "a"], ["start", "a"]]),
        (row("a"), {**UP, "UnitFileState": "static"}, {}, []),
        (row("a"), {**UP, "UnitFileState": "disabled"}, {}, [["enable", "a"]]),
        (row("a"), UP, {"restart": True}, [["restart", "a"]]),
        (row("a"), DOWN, {"restart": True}, [["enable", "a"], ["restart", "a"]]),
        (row("a", False, "stopped"), UP, {"restart": True}, [["disable", "a"], ["stop", "a"]]),
        (row("a", False, "stopped"), DOWN, {}, []),
        (row("a"), FAILED, {}, [["enable", "a"], ["start", "a"]]),
        (row("a"), FAILED, {"forgive": True}, [["reset-failed", "a"], ["enable", "a"], ["start", "a"]]),
        (row("a"), {**UP, "ActiveState": "activating"}, {"forgive": True}, [["reset-failed", "a"], ["start", "a"]]),
    ],
)
def test_only_what_is_not_as_planned_is_due(planned, seen, how, calls):
    assert task.due([planned], {"a": seen}, **how) == calls


@pytest.fixture
def host(monkeypatch):
    """systemd with units .seen, and modprobe; .calls is what they were told, .broken a call that fails."""

    facts = {"secure_boot": False, "kernel": "6.1", "driver": {"installed_version": "580.178.04"}}
    found = SimpleNamespace(seen={}, calls=[], broken=[], facts=facts)

    def run(argv, **_):
        if argv[0] == "journalctl":
            return 0, "no device\ngiving up\n", ""
        words = argv[argv[0] == "systemctl" :]
        found.calls.append(words)
        return (1, "", "Job for b failed.\nSee status.") if words == found.broken else (0, "", "")

    monkeypatch.setattr(states, "states", lambda names: {name: found.seen[name] for name in names})
    monkeypatch.setattr(task, "compare", lambda *_: {"differences": {}})
    monkeypatch.setattr(task, "read_facts", lambda _: (found.facts, {}))
    programs(monkeypatch, run)
    monkeypatch.setattr("tests.playbooks.modules.Module.get_bin_path", lambda *_: "/x", raising=False)
    return found


PLAN = {
    "package_manager": "apt",
    "components": {"driver": {"packages": [{"name": "nvidia-dkms-580", "version": "1"}], "holds": []}},
}


def go(*rows, **options):
    modes = {name: options.pop(name) for name in ("check_mode",) if name in options}
    return answer_of(task, {"host": "node01", "plan": PLAN, "services": list(rows), **options}, **modes)


def test_modules_come_before_the_services_that_need_them(host):
    host.seen = {"a": DOWN}
    said = go(row("a"), modules=["nvidia", "ib_umad"], reload=True)

    assert host.calls == [
        ["modprobe", "nvidia"],
        ["modprobe", "ib_umad"],
        ["daemon-reload"],
        ["enable", "a"],
        ["start", "a"],
    ]
    assert (said["changed"], said["differences"]) == (True, {})


@pytest.mark.parametrize(
    ("name", "secure_boot", "words"),
    [
        ("nvidia", False, "The last lines of dmesg have the reason; if the kernel was replaced on disk"),
        ("nvidia", True, "Secure Boot is on: enroll the key that DKMS signs with"),
        ("ib_umad", False, "the kernel rejected module ib_umad, which is planned at boot"),
        ("nvidia_peermem", False, "run dpkg-reconfigure --frontend noninteractive nvidia-dkms-580, reboot"),
    ],
)
def test_a_module_that_the_kernel_does_not_take_is_told_with_what_helps_and_no_service_is_touched(
    host, name, secure_boot, words
):
    host.seen, host.broken = {"a": DOWN}, ["modprobe", name]
    host.facts["secure_boot"] = secure_boot
    said = go(row("a"), modules=[name])

    assert said["msg"].startswith("node01: ")
    assert words in said["msg"]
    assert "Job for b failed. See status" in said["msg"]
    assert said["msg"].endswith("hen run again.")
    assert host.calls == [["modprobe", name]]


def test_a_host_that_came_back_in_another_kernel_is_told_so(host):
    """It was "driver None is installed and its module built for kernel 6.1", with dmesg as the place to look."""
    host.broken, host.facts["driver"] = ["modprobe", "nvidia"], {"installed_version": None}

    words = go(modules=["nvidia"])["msg"]

    assert words.startswith(
        "node01: kernel 6.1, which this host has booted, has no module of the driver: modprobe nvidia"
    )
    assert words.endswith("Run again, which builds one for this kernel, or boot the kernel that has one (dkms status).")


def test_what_another_program_starts_and_stops_is_left_as_it_is(host):
    """IMEX under Slurm: its prolog starts the daemon, and may have it enabled, masked or not at all."""
    for state in (UP, DOWN, FAILED, {**DOWN, "LoadState": "masked"}, {"LoadState": "not-found"}):
        host.seen = {"a": UP, "imex": state}
        said = go(row("imex", False, "leave"), row("a"), forgive=True, restart=True)

        assert said["actions"] == ["restart a"]
        assert states.differences({"services": [row("imex", False, "leave")]}, host.seen) == []


def test_a_service_that_fails_is_told_with_its_own_words_and_the_next_is_not_touched(host):
    host.seen, host.broken = {"b": DOWN, "c": DOWN}, ["start", "b"]
    said = go(row("b"), row("c"))

    assert said["msg"] == (
        "node01: systemctl start b: exit 1: Job for b failed. See status. Its log: no device / giving up "
        "Check systemctl status b on the host, repair the service, then run again."
    )
    assert host.calls == [["enable", "b"], ["start", "b"]]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"LoadState": "not-found", "ActiveState": "inactive"}, "b: there is no such service here"),
        (
            {"LoadState": "masked", "ActiveState": "inactive"},
            "b is masked. If that is not intended: systemctl unmask b",
        ),
        ({"error": "no bus"}, "services cannot be read: no bus"),
    ],
)
def test_what_cannot_be_started_is_refused_before_any_other_is(host, seen, words):
    host.seen = {"a": DOWN, "b": seen}
    said = go(row("a"), row("b"))

    assert words in said["msg"]
    assert host.calls == []
