"""What stands in the way of a change: locks, foreign packages, vGPU guests, space, keys. On made-up hosts."""

import fcntl
import multiprocessing
from pathlib import Path

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.stubs import program

safety = shared("safety")
headers = shared("offers")


def config(*capabilities: bytes, listed: bool = True) -> bytes:
    """A PCI configuration space whose capabilities stand one after the other from 0x40 on."""
    space = bytearray(256)
    space[0x06] = 0x10 if listed else 0
    place = 0x40
    space[0x34] = place
    for number, content in enumerate(capabilities):
        following = place + 16 if number + 1 < len(capabilities) else 0
        space[place : place + len(content)] = content
        space[place + 1] = following
        place += 16
    return bytes(space)


POWER = bytes([0x01, 0, 0, 0])
MARK = bytes([0x09, 0, 8]) + b"VF"


@pytest.mark.parametrize(
    ("space", "guest"),
    [
        (config(POWER, MARK), True),
        (config(MARK), True),
        (config(POWER), False),
        (config(POWER, bytes([0x09, 0, 8]) + b"XX"), False),
        (config(MARK, listed=False), False),
        (config(MARK)[:0x30], False),
        (b"", False),
    ],
)
def test_a_vgpu_guest_bears_its_mark_in_the_vendor_specific_capability(tmp_path, space, guest):
    folder = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    folder.mkdir(parents=True)
    (folder / "config").write_bytes(space)

    assert safety.vgpu_guest(str(tmp_path), ["0000:af:00.0", "0000:3b:00.0"]) is guest


def hold(path: str, ready, done) -> None:
    with Path(path).open("rb+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        ready.set()
        done.wait()


def test_whoever_holds_a_package_lock_is_named(tmp_path, monkeypatch):
    """The lock of a running apt is an fcntl lock; a file that merely exists is none."""
    lock = tmp_path / "lock-frontend"
    lock.touch()
    monkeypatch.setattr(safety, "FCNTL_LOCKS", {"dpkg": (str(lock), str(tmp_path / "absent"))})
    assert safety.package_locks("dpkg") == []

    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(str(lock), ready, done))
    holder.start()
    ready.wait()
    try:
        (words,) = safety.package_locks("dpkg")
    finally:
        done.set()
        holder.join()

    assert words.startswith(f"{lock} is held by ")
    assert words.endswith(f"({holder.pid})")


def test_dnf_leaves_its_process_number_and_a_dead_one_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(safety, "FCNTL_LOCKS", {"rpm": ()})
    monkeypatch.setattr(safety, "PID_LOCKS", {"rpm": (str(tmp_path / "*_lock.pid"),)})
    (tmp_path / "metadata_lock.pid").write_text("999999999")
    assert safety.package_locks("rpm") == []

    (tmp_path / "metadata_lock.pid").write_text("1")
    assert len(safety.package_locks("rpm")) == 1


def test_what_dkms_built_and_which_kernels_are_there(tmp_path):
    (tmp_path / "var/lib/dkms/nvidia/580.178.04/5.15.0-179-generic/x86_64/module").mkdir(parents=True)
    (tmp_path / "lib/modules/5.15.0-179-generic").mkdir(parents=True)
    (tmp_path / "lib/modules/5.15.0-179-generic/modules.dep").touch()
    (tmp_path / "lib/modules/5.15.0-100-generic").mkdir()

    assert safety.dkms(str(tmp_path)) == {"580.178.04": ["5.15.0-179-generic"]}
    assert safety.kernels(str(tmp_path)) == ["5.15.0-179-generic"]


@pytest.mark.parametrize(
    ("manager", "names", "told"),
    [
        ("apt", ["linux-headers-1", "linux-headers-2"], "linux-headers-1 | 1.2 | http://x jammy/main amd64 Packages\n"),
        ("dnf", ["kernel-devel-5.14.0-503.el9.x86_64", "kernel-headers"], "kernel-devel 0:5.14.0-503.el9\n"),
    ],
)
def test_headers_that_no_source_offers_are_missing(monkeypatch, manager, names, told):
    """dnf is asked with a version, and answers by name."""
    monkeypatch.setattr(headers, "command", lambda argv: told)

    assert headers.missing(names, manager) == names[1:]


def test_headers_of_the_next_kernel_are_no_headers_of_the_running_one(monkeypatch):
    """A mirror drops those of the kernel that runs as soon as the upgraded one is there."""
    running, upgraded = "kernel-devel-matched-5.14.0-427.el9.x86_64", "kernel-devel-matched-5.14.0-503.el9.x86_64"
    monkeypatch.setattr(headers, "command", lambda argv: "kernel-devel-matched 0:5.14.0-503.el9\n")

    assert headers.missing([running, upgraded], "dnf") == [running]


def test_every_lock_that_stops_apt_is_waited_for():
    """apt-daily downloads for minutes with the last one alone, for which apt has no timeout."""
    assert set(safety.FCNTL_LOCKS["dpkg"]) == {
        "/var/lib/dpkg/lock-frontend",
        "/var/lib/dpkg/lock",
        "/var/lib/apt/lists/lock",
        "/var/cache/apt/archives/lock",
    }


def test_folders_of_one_file_system_share_their_space(tmp_path, monkeypatch):
    (tmp_path / "usr/local").mkdir(parents=True)
    (tmp_path / "boot").mkdir()
    devices = {str(tmp_path / "boot"): 2}
    monkeypatch.setattr(safety, "device", lambda path: devices.get(path, 1))
    folders = [str(tmp_path / name) for name in ("usr", "usr/local", "boot", "absent")]

    found = safety.file_systems(folders)

    assert [row["folders"] for row in found] == [[folders[0], folders[1], folders[3]], [folders[2]]]
    assert all(row["free_bytes"] > 0 for row in found)


@pytest.fixture
def mok(tmp_path):
    for name in ("mok.key", "mok.der"):
        (tmp_path / name).write_text("x")
    return {"mok": {"key": str(tmp_path / "mok.key"), "certificate": str(tmp_path / "mok.der")}}


@pytest.mark.parametrize(
    ("told", "status", "answer"),
    [
        ("/etc/site/mok.der is already enrolled\n", 1, (True, "")),
        ("/etc/site/mok.der is already in db\n", 1, (True, "")),
        ("/etc/site/mok.der is blocked in dbx\n", 1, (None, "/etc/site/mok.der is blocked in dbx")),
        ("/etc/site/mok.der is not enrolled\n", 0, (False, "/etc/site/mok.der is not enrolled")),
        ("SKIP: /etc/site/mok.der is already in the enrollment request\n", 1, (False, "its enrollment waits for")),
        ("", 1, (None, "mokutil prints nothing")),
        ("EFI variables are not supported on this system\n", 255, (None, "mokutil: exit 255")),
    ],
)
def test_what_mokutil_says(tools, mok, told, status, answer):
    program(tools, "mokutil", told, status)

    found = safety.mok_state(mok, True)

    assert found["enrolled"] is answer[0]
    assert found["why"].startswith(answer[1])
    assert found["missing"] == []


def test_without_mokutil_it_is_not_known(tools, mok):
    assert safety.mok_state(mok, None)["enrolled"] is None


def test_files_that_are_not_there_are_named(tools, mok, tmp_path):
    (tmp_path / "mok.key").unlink()

    assert safety.mok_state(mok, True)["missing"] == [mok["mok"]["key"]]
    assert safety.mok_state({}, True) is None
