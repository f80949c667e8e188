"""dmesg and journalctl of a simulated machine: their options, and the forms of a line."""

import json

import pytest

from gpucheck.simulator.kernel_log import Line, dmesg, journal, options, read

LINES = [Line(6, 0.004137, "Command line: ro"), Line(3, 61.5, "NVRM: Xid (PCI:0000:4c:00): 79"), Line(4, 62.0, "x")]


def test_records_of_kmsg_are_read(tmp_path, monkeypatch):
    (tmp_path / "root" / "dev").mkdir(parents=True)
    (tmp_path / "root/dev/kmsg").write_text("6,1,4137,-;Command line: ro\n SUBSYSTEM=pci\n3,2,61500000,-;a;b\nnoise\n")
    monkeypatch.setenv("GPUCHECK_SIMULATOR", str(tmp_path))

    assert read() == [Line(6, 0.004137, "Command line: ro"), Line(3, 61.5, "a;b")]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("dmesg", ["-T"], {"--ctime": ""}),
        ("dmesg", ["-Tx", "--level=err,warn"], {"--ctime": "", "--decode": "", "--level": "err,warn"}),
        ("dmesg", ["-l", "err"], {"--level": "err"}),
        ("dmesg", ["--time-format", "iso"], {"--time-format": "iso"}),
        ("journalctl", ["-k", "-n", "5", "--no-pager"], {"-k": "", "--lines": "5", "--no-pager": ""}),
        ("journalctl", ["-b0", "-ojson", "-u", "docker"], {"-b": "0", "--output": "json", "--unit": "docker"}),
        ("journalctl", ["-n", "-k"], {"--lines": "", "-k": ""}),
    ],
)
def test_options_are_read(name, arguments, expected):
    assert options(name, arguments) == expected


@pytest.mark.parametrize(
    ("chosen", "first"),
    [
        ({}, "[    0.004137] Command line: ro"),
        ({"--notime": ""}, "Command line: ro"),
        ({"--decode": ""}, "kern  :info  : [    0.004137] Command line: ro"),
        ({"--level": "err"}, "[   61.500000] NVRM: Xid (PCI:0000:4c:00): 79"),
    ],
)
def test_dmesg_prints_as_it_was_asked_to(chosen, first):
    assert next(dmesg(LINES, chosen, 0.0)) == first


def test_dmesg_prints_json():
    assert [one["pri"] for one in json.loads("\n".join(dmesg(LINES, {"--json": ""}, 0.0)))["dmesg"]] == [6, 3, 4]


@pytest.mark.parametrize(
    ("chosen", "texts"),
    [
        ({"--output": "cat"}, [line.text for line in LINES]),
        ({"--output": "cat", "--lines": "1"}, ["x"]),
        ({"--output": "cat", "--lines": "0"}, ["-- No entries --"]),
        ({"--output": "cat", "--priority": "3"}, [LINES[1].text]),
        ({"--output": "cat", "--priority": "emerg..warn"}, [LINES[1].text, "x"]),
        ({"--output": "cat", "--grep": "Xid"}, [LINES[1].text]),
        ({"--unit": "docker"}, ["-- No entries --"]),
    ],
)
def test_journal_has_the_lines_that_were_asked_for(chosen, texts):
    assert list(journal(LINES, chosen, 0.0)) == texts


def test_journal_lines_are_of_the_kernel():
    assert " kernel: Command line: ro" in next(journal(LINES, {}, 0.0))
    assert json.loads(next(journal(LINES, {"--output": "json"}, 0.0)))["MESSAGE"] == "Command line: ro"
