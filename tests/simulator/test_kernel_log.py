"""dmesg and journalctl of a simulated machine: their options, and the forms of a line."""

import json
from datetime import datetime, timezone

import pytest

from gpucheck.simulator.kernel_log import Line, dmesg, journal, options, read

LINES = [Line(6, 0.004137, "Command line: ro"), Line(3, 61.5, "NVRM: Xid (PCI:0000:4c:00): 79"), Line(4, 62.0, "x")]


def test_records_of_kmsg_are_read(tmp_path, monkeypatch):
    (tmp_path / "root" / "dev").mkdir(parents=True)
    (tmp_path / "root/dev/kmsg").write_text("6,1,4137,-;Command line: ro\n SUBSYSTEM=pci\n3,2,61500000,-;a;b\nnoise\n")
    monkeypatch.setenv("GPUCHECK_SIMULATOR", str(tmp_path))

    assert read() == [Line(6, 0.004137, "Command line: ro"), Line(3, 61.5, "a;b")]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ([], "[    0.004137] Command line: ro"),
        (["-wT"], "[Thu Jan  1 00:00:00 1970] Command line: ro"),
        (["-Tx", "--level=err,warn"], "kern  :err   : [Thu Jan  1 00:01:01 1970] NVRM: Xid (PCI:0000:4c:00): 79"),
        (["--color=never", "-l", "err"], "[   61.500000] NVRM: Xid (PCI:0000:4c:00): 79"),
    ],
)
def test_dmesg_prints_as_it_was_asked_to(monkeypatch, words, first):
    monkeypatch.setattr("time.ctime", lambda seconds: datetime.fromtimestamp(seconds, timezone.utc).ctime())

    assert next(dmesg(LINES, options("dmesg", words), 0.0)) == first


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["-k", "-b0", "-o", "cat", "-n", "--no-pager"], [line.text for line in LINES]),
        (["-kocat", "-n1"], ["x"]),
        (["--output=cat", "--lines", "0"], ["-- No entries --"]),
        (["-o", "cat", "-p", "3"], [LINES[1].text]),
        (["-o", "cat", "-p", "emerg..warn"], [LINES[1].text, "x"]),
        (["-o", "cat", "--grep", "Xid"], [LINES[1].text]),
        (["-b0", "-ojson", "-u", "docker"], []),
        (["-u", "docker"], ["-- No entries --"]),
        (["-t", "sshd"], ["-- No entries --"]),
    ],
)
def test_journal_has_the_lines_that_were_asked_for(words, texts):
    assert list(journal(LINES, options("journalctl", words), 0.0)) == texts


def test_journal_lines_are_of_the_kernel():
    assert " kernel: Command line: ro" in next(journal(LINES, options("journalctl", ["-kf"]), 0.0))
    assert json.loads(next(journal(LINES, options("journalctl", ["-o", "json"]), 0.0)))["MESSAGE"] == "Command line: ro"
