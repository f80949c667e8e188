"""Packages in one transaction: what the package manager is asked, in which order, and what stays where it refuses."""

import copy

import pytest

from tests.playbooks.package_manager import (
    NOTHING,
    calls,
    go,
    missing,
    package_machine,  # noqa: F401 - a fixture
    task,
)


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_a_host_that_is_as_planned_hears_nothing(machine, manager):
    said = go(manager, machine)

    assert machine.calls == []
    assert (said["changed"], said["kernels_before"], said["host"]) == (False, ["6.1"], machine.state["host"])


def test_apt_installs_all_of_it_in_one_transaction_and_holds_it(machine):
    missing(machine)
    machine.installed["newest"] = "1"
    said = go("apt", machine, extra=["linux-headers-6.1"])

    # What is wanted in its newest version and is there would move if it were named.
    assert machine.calls == [
        "apt-get install driver=2-1 toolkit=12-1 linux-headers-6.1",
        "apt-mark hold driver toolkit newest",
    ]
    assert said["changed"] is True


def test_files_are_there_before_the_packages_whose_scripts_read_them(machine, tmp_path):
    missing(machine)
    path = tmp_path / "modprobe.d/nvidia.conf"
    there = []
    machine.watch = lambda _: there.append(path.exists())
    go("apt", machine, files=[{"path": str(path), "content": "options nvidia a=1\n", "mode": "0644"}])

    assert there == [True, True, True]
    assert path.read_text() == "options nvidia a=1\n"


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_files_alone_are_written_without_the_package_manager(machine, tmp_path, manager):
    row = {"path": str(tmp_path / "a/b.conf"), "content": "x\n"}

    assert go(manager, machine, files=[row])["changed"] is True
    assert go(manager, machine, files=[row])["changed"] is False
    assert machine.calls == []
    assert "absolute" in go(manager, machine, files=[{**row, "path": "/etc"}])["msg"]


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_a_library_that_programs_do_not_find_is_found_again_without_any_package(machine, manager):
    """A transaction that was cut off at its very end: every package is as planned."""
    machine.state["host"]["library_lost"] = machine.lost = True

    assert go(manager, machine)["changed"] is True
    assert machine.calls == ["ldconfig"]
    assert go(manager, machine, "cuda")["changed"] is False


def test_apt_finishes_what_was_cut_off_first_and_lets_go_of_what_is_in_the_way(machine):
    missing(machine)
    machine.state["host"].update(
        unfinished=["x"],
        strays=["nvidia-driver-pinning-570 1", "libnvidia-x 1"],
        unplanned={"installed": ["old"], "held": ["old"]},
    )
    go("apt", machine)

    assert machine.calls == [
        "dpkg -a",
        "dpkg-query nvidia-driver-pinning-570",
        "dpkg --configure -a --force-confold",
        "apt-get install",
        "apt-mark unhold old",
        "apt-get remove nvidia-driver-pinning-570",
        "apt-get install driver=2-1 toolkit=12-1 newest",
        "apt-mark hold driver toolkit newest",
    ]


PLANNED = "apt-get install driver=2-1 toolkit=12-1 newest"
MENDED = ["dpkg --configure -a --force-confold", "apt-get install"]


@pytest.mark.parametrize(
    ("unfinished", "moves", "broken", "calls"),
    [
        # Planned, replaced or removed: a script that always fails is not run again before it is replaced.
        (["driver"], "", "", ["dpkg -a", PLANNED]),
        (["cuda-old"], "Remv cuda-old [1]\n", "", ["dpkg -a", PLANNED]),
        # Not the plan's, or the transaction cannot be done before something else is repaired.
        (["driver", "vim"], "", "", ["dpkg -a", *MENDED, PLANNED]),
        (["driver"], "", "once", ["dpkg -a", PLANNED, *MENDED, PLANNED]),
    ],
)
def test_a_package_of_the_plan_whose_script_fails_is_planned_through(machine, unfinished, moves, broken, calls):
    missing(machine)
    machine.state["host"]["unfinished"], machine.moves, machine.broken = unfinished, moves, broken and PLANNED

    def once(_):
        machine.broken = "" if PLANNED in machine.calls else machine.broken

    machine.watch = once
    go("apt", machine)

    assert machine.calls == [*calls, "apt-mark hold driver toolkit newest"]


@pytest.mark.parametrize(("manager", "program"), [("apt", "apt-get"), ("dnf", "dnf")])
def test_a_transaction_that_hangs_is_stopped_and_a_download_is_not(machine, monkeypatch, manager, program):
    missing(machine)
    go(manager, machine, state="prepared")
    downloaded = list(machine.bounded)
    go(manager, machine)

    assert downloaded == [] if manager == "apt" else set(downloaded) <= {"dnf"}
    assert program in machine.bounded[len(downloaded) :]
    monkeypatch.setattr(calls, "attempt", lambda *_: (124, "Setting up nvidia-dkms-580 ...\n", ""))
    with pytest.raises(calls.Refused, match=r"apt-get: stopped, because it did not end within 9 s: Setting up nvidia"):
        calls.call(None, ["apt-get", "install"], shown="apt-get", most_s=9)


def test_where_apt_refuses_what_is_still_there_is_held_again(machine):
    missing(machine)
    machine.state["host"]["unplanned"] = {"installed": ["old", "gone"], "held": ["old", "gone"]}
    machine.installed.update(old="1")
    machine.broken = "apt-get install driver"
    said = go("apt", machine)

    assert machine.calls[-1] == "apt-mark hold old"
    assert said["msg"] == (
        "node01: apt could not install the planned packages; the holds were restored. apt-get: exit 1: noise E: not "
        "to be had. Check /var/log/dpkg.log on the host, repair the cause, then run again."
    )


def test_only_the_driver_brings_its_stream_its_pins_and_what_it_builds_on(machine):
    missing(machine, "cuda")
    machine.state["host"].update(
        module_stream_planned=False, prerequisites_missing=["epel-release"], strays=["nvidia-driver-pinning-570 1"]
    )
    go("dnf", machine, "cuda")

    assert machine.calls == ["dnf install toolkit=12-1 newest"]


def test_dnf_changes_the_stream_and_prepares_before_its_one_transaction(machine):
    missing(machine)
    machine.state["host"].update(
        superfluous=["driver-1-1"],
        unfinished=["driver"],
        module_stream="570-open",
        module_stream_planned=False,
        versionlock=False,
        prerequisites_missing=["epel-release"],
        compilers_missing=["gcc-c++"],
    )
    go("dnf", machine)

    assert machine.calls == [
        "rpm --erase --nodeps driver-1-1",
        "dnf reinstall driver",
        "dnf module reset nvidia-driver",
        "dnf module enable nvidia-driver:580-open",
        "dnf install epel-release gcc-c++ python3-dnf-plugin-versionlock",
        "dnf install driver=2-1 toolkit=12-1 newest",
    ]


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_compilers_come_before_the_driver_and_also_by_themselves(machine, manager):
    """DKMS builds within the transaction."""
    machine.state["host"]["compilers_missing"] = ["g++"]

    assert go(manager, machine, "cuda")["changed"] is False
    assert go(manager, machine)["changed"] is True
    assert machine.calls == [f"{'apt-get' if manager == 'apt' else 'dnf'} install g++"]

    machine.calls.clear()
    missing(machine)
    go(manager, machine)
    assert [words.split()[2] for words in machine.calls if " install " in words] == ["g++", "driver=2-1"]


def test_a_stream_that_is_not_to_be_had_leaves_the_one_before(machine):
    missing(machine)
    machine.state["host"].update(module_stream="570-open", module_stream_planned=False)
    machine.broken = "enable nvidia-driver:580-open"
    said = go("dnf", machine)

    assert machine.calls[-1] == "dnf module enable nvidia-driver:570-open"
    assert "The repository has no stream 580-open of module nvidia-driver" in said["msg"]
    assert "choose another driver branch in stack.yml. Check /var/log/dnf.log" in said["msg"]


def test_stale_locks_are_lifted_for_the_transaction_and_new_ones_written_after_it(machine, monkeypatch):
    missing(machine)
    machine.lock_file.write_text("# a person's\nother-1-1.*\n\ndriver-1-1.*\n")
    machine.state["components"]["driver"]["stale"] = ["driver-1-1.*"]
    seen = []
    machine.watch = lambda _: seen.append(machine.locks())
    after = copy.deepcopy(machine.state)
    after["components"]["driver"] = {**NOTHING, "missing": ["driver-2-1.*"]}
    answers = [machine.state, after, after]
    monkeypatch.setattr(task, "compare", lambda *_: answers.pop(0))
    go("dnf", machine)

    # Simulated and installed without the lock.
    assert seen == [["# a person's", "other-1-1.*", ""]] * 2
    assert machine.locks() == ["# a person's", "other-1-1.*", "driver-2-1.*"]


def test_where_dnf_refuses_the_locks_are_back(machine):
    missing(machine)
    machine.lock_file.write_text("driver-1-1.*\n")
    machine.lock_file.chmod(0o640)
    machine.state["components"]["driver"]["stale"] = ["driver-1-1.*"]
    machine.broken = "dnf install"
    said = go("dnf", machine)

    assert said["failed"]
    assert "the version locks were restored" in said["msg"]
    assert machine.locks() == ["driver-1-1.*"]
    assert machine.lock_file.stat().st_mode & 0o777 == 0o640


def test_another_programs_lock_is_waited_for_and_named_when_it_lasts(monkeypatch):
    held = ["/var/lib/dpkg/lock-frontend is held by apt (7)"]
    answers = [held, held, []]
    slept = []
    monkeypatch.setattr(calls, "package_locks", lambda _: answers.pop(0))
    calls.wait_for_locks("dpkg", 60, sleep=slept.append, clock=lambda: len(slept))
    assert slept == [1, 1]

    monkeypatch.setattr(calls, "package_locks", lambda _: held)
    with pytest.raises(calls.Refused, match=r"After 3 s of waiting .*lock-frontend is held by apt \(7\)"):
        calls.wait_for_locks("dpkg", 3, sleep=slept.append, clock=lambda: len(slept))


def test_what_dpkg_said_is_the_reason_and_not_that_apt_called_it(machine):
    """As apt 2.6 prints it without a terminal; what follows the error is as long as the transaction."""
    output = (
        "Setting up a (1) ...\nof a\nSetting up x (1) ...\nError! Bad return status\n"
        + "Setting up y (1) ...\nof y\n" * 9
    )
    errors = "dpkg: error processing package x (--configure):\n installed x package post-installation script\n"
    errors += "Errors were encountered while processing:\n x\nE: Sub-process /usr/bin/dpkg returned an error code (1)\n"

    assert calls.last_words(calls.dpkg_words(output, errors), errors) == (
        "Error! Bad return status dpkg: error processing package x (--configure): "
        "installed x package post-installation script"
    )
    assert calls.dpkg_words("Reading package lists...", "E: no space") == ""


def test_calls_hold_back_needrestart_and_questions(machine):
    """needrestart restarts services by itself when apt runs without a terminal (Ubuntu 24.04)."""
    seen = []
    machine.watch = lambda how: seen.append(how["environ_update"])
    missing(machine)
    go("apt", machine)

    assert seen
    for environment in seen:
        assert (environment["NEEDRESTART_SUSPEND"], environment["NEEDRESTART_MODE"]) == ("1", "l")
        assert environment["DEBIAN_FRONTEND"] == "noninteractive"


def test_apt_holds_what_came_along_again_after_the_change(machine, monkeypatch):
    missing(machine)
    machine.state["components"]["cuda"]["stale"] = ["libcublas-13-0"]
    after = copy.deepcopy(machine.state)
    after["components"] = {"driver": dict(NOTHING), "cuda": {**NOTHING, "missing": ["libcublas-13-0", "toolkit"]}}
    answers = [machine.state, after, after]
    monkeypatch.setattr(task, "compare", lambda *_: answers.pop(0))
    go("apt", machine)

    assert machine.calls == [
        "apt-mark unhold libcublas-13-0",
        "apt-get install driver=2-1 toolkit=12-1 newest",
        "apt-mark hold driver toolkit newest",
        "apt-mark hold libcublas-13-0",
    ]
