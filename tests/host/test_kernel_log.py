"""The kernel log: records of /dev/kmsg, lines of the journal, and saying so when neither may be read."""

import os
import subprocess
from pathlib import Path

import pytest

from gpucheck.host import kernel_log
from gpucheck.host.kernel_log import journal_lines, kmsg_lines, read_kernel_log
from gpucheck.model import KernelLine, KernelLog

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
RECORDS = (
    "6,0,0,-;Linux version 5.15.0-113-generic\n"
    f"3,901,12345678,-,caller=T42;{XID}\n"
    " SUBSYSTEM=pci\n"
    " DEVICE=+pci:0000:3b:00.0\n"
    "4,902,12345999,-;pcieport 0000:3a:00.0: AER: Corrected error received\\x0a again\n"
    "6,903,12346999,-;usb 1-1: new high-speed USB device\n"
)


def test_records_of_kmsg():
    """Lines about something else and the continuation lines of a record are left out; escapes are resolved."""
    first, lines = kmsg_lines(RECORDS)

    assert first == 0
    assert lines == (
        KernelLine(text=XID, seconds=12.345678),
        KernelLine(text="pcieport 0000:3a:00.0: AER: Corrected error received\\x0a again", seconds=12.345999),
    )


NAME = "\nPASS  99 hosts"  # a process name has 15 characters at most
KILLED = "NVRM: Xid (PCI:0000:3b:00): 31, pid=9, name={}, Ch 00000010, MMU Fault"
ESCAPES = {
    "name=\\x0aPASS  all ok": "name=\\x0aPASS  all ok",
    "name=\\x1b[2J\\x7f": "name=\\x1b[2J\\x7f",
    "name=\\xc3\\xa9\\xe6\\xbc\\xa2": "name=é漢",
    "name=\\xc3\\x9b": "name=Û",
    "name=\\xe2\\x80\\xae\\xc2\\x9b": "name=\\xe2\\x80\\xae\\xc2\\x9b",
    "name=\\xff\\xc3\\xa9\\xe2\\x80": "name=\\xffé\\xe2\\x80",
    "name=C:\\x5cx0a": "name=C:\\x0a",
}


@pytest.mark.parametrize(("written", "text"), ESCAPES.items())
def test_escape_of_the_kernel_is_resolved_only_if_printable(written, text):
    """Anyone may name a process; a line break in the name must not become a line of the report."""
    _, (line,) = kmsg_lines(f"3,0,1000000,-;NVRM: Xid {written}\n")

    assert line.text == f"NVRM: Xid {text}"


def test_process_name_makes_no_line_of_a_message():
    """In the records of /dev/kmsg, and in the journal, which prints the line break itself."""
    _, of_kmsg = kmsg_lines(f"3,0,1000000,-;{KILLED.format(NAME)}\n".replace("\n", "\\x0a", 1))
    first, _, rest = KILLED.format(NAME).partition("\n")
    of_journal = journal_lines(f"[    1.000000] node07 kernel: {first}\n                             {rest}\n")

    assert of_kmsg == of_journal == (KernelLine(text=KILLED.format(NAME.replace("\n", "\\x0a")), seconds=1.0),)


def test_message_of_several_lines_in_a_record_is_taken_apart():
    """The driver names itself on every line, which no process name has room for."""
    lines = ("NVRM: The NVIDIA GPU 0000:b3:00.0", "NVRM: fallen off the bus and is not responding to commands.")
    _, (line,) = kmsg_lines(f"3,0,1000000,-;{(chr(92) + 'x0a').join(lines)}\n")

    assert line.text.split("\n") == list(lines)


def test_a_message_of_several_lines_in_the_journal_stays_whole():
    """journalctl indents all lines but the first: the driver says in three that a GPU fell off the bus."""
    content = (
        "[ 1843.308145] node07 kernel: NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        "                              NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        "                              NVRM: fallen off the bus and is not responding to commands.\n"
    )
    (line,) = journal_lines(content)

    assert line.text.split("\n")[2] == "NVRM: fallen off the bus and is not responding to commands."


def test_the_newest_lines_are_kept(monkeypatch):
    monkeypatch.setattr(kernel_log, "MOST_LINES", 3)
    content = "".join(f"3,{n},{n},-;NVRM: Xid {n}\n" for n in range(10))

    assert [line.text for line in kmsg_lines(content)[1]] == ["NVRM: Xid 7", "NVRM: Xid 8", "NVRM: Xid 9"]


@pytest.fixture
def device(tmp_path):
    (tmp_path / "dev").mkdir()
    return tmp_path / "dev/kmsg"


@pytest.fixture
def journal(monkeypatch):
    """What journalctl prints on stdout and stderr."""

    def answer(stdout="", stderr=""):
        done = subprocess.CompletedProcess([], 0, stdout=stdout, stderr=stderr)
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)

    answer()
    return answer


def test_ring_that_goes_back_to_boot_is_enough(tmp_path, device, journal):
    device.write_text(RECORDS)
    journal(f"[   1.0] node07 kernel: {XID}\n")

    seen = read_kernel_log(tmp_path, simulated=False)

    assert (seen.source, len(seen.lines)) == ("/dev/kmsg", 2)


def test_ring_that_was_overwritten_asks_the_journal(tmp_path, device, journal):
    """The Xid of last week is no longer in the ring."""
    device.write_text("6,70001,864000000000,-;usb 1-1: new\n6,70002,900000000000,-;pcieport 0000:3a:00.0: AER\n")
    seen = read_kernel_log(tmp_path, simulated=False)
    assert (seen.source, seen.begins_s) == ("/dev/kmsg, whose oldest messages are overwritten", 864000.0)

    journal(f"-- Boot 1 --\n[   10.5] node07 kernel: usb 1-1: new\n[   12.345678] node07 kernel: {XID}\n")
    seen = read_kernel_log(tmp_path, simulated=False)

    assert (seen.source, [line.text for line in seen.lines]) == ("journalctl --dmesg", [XID])
    assert seen.begins_s == 10.5


def test_what_may_not_be_read_is_not_an_empty_log(tmp_path, device, journal, monkeypatch):
    """dmesg_restrict without root, and a journal that shows only the user's own messages."""
    journal(stderr="Hint: You are currently not seeing messages from other users and the system.\n")

    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    seen = read_kernel_log(tmp_path, simulated=False)

    assert (seen.lines, seen.source) == ((), None)
    assert seen.denied is not None
    assert "/dev/kmsg: Operation not permitted" in seen.denied
    assert "not seeing messages from other users" in seen.denied
    assert "kernel.dmesg_restrict" in seen.denied


def test_no_journal_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "journalctl: not installed" in str(read_kernel_log(tmp_path, simulated=False).denied)


def test_a_simulated_machine_never_shows_the_log_of_the_host_below(tmp_path, device, journal):
    journal(f"[   1.0] node07 kernel: {XID}\n")
    assert read_kernel_log(tmp_path, simulated=True) == KernelLog(
        denied="/dev/kmsg: the simulated machine has no kernel log"
    )

    device.write_text(RECORDS)
    assert len(read_kernel_log(tmp_path, simulated=True).lines) == 2


def test_ring_of_this_machine_is_read_to_its_end():
    """/dev/kmsg never ends by itself: reading stops at the newest record."""
    seen = read_kernel_log(Path("/"), simulated=False)

    assert (seen.source is None) == (seen.denied is not None)


def test_a_record_with_numbers_of_thousands_of_digits_is_no_record():
    record = f"6,{'9' * 5000},1,-;NVRM: Xid (PCI:0000:01:00): 79\n"

    assert kmsg_lines(record)[1] == ()
    assert len(kmsg_lines("6,9,1,-;NVRM: Xid (PCI:0000:01:00): 79\n")[1]) == 1
