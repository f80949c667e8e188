"""Kernel logs in every form that people have: the same messages give the same findings."""

import json
from datetime import datetime, timezone

import pytest

from gpucheck.checks.kernel import log as check
from gpucheck.imports import ImportProblem
from gpucheck.model import KernelLine
from tests.imports.logs import read

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OTHER = "nvidia 0000:4c:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0x80000040 flags=0x0020]"
BAR = "pci 0000:4c:00.0: BAR 1: no space for [mem size 0x2000000000 64bit pref]"
LINES = (XID, OTHER, BAR)
SENTENCE = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)
DAY = datetime(2025, 2, 23, 16, 24, 18, 123456, tzinfo=timezone.utc)
MICRO = str(int(DAY.timestamp() * 1e6))


def each(form):
    return lambda lines: "".join(form.format(line) + "\n" for line in lines)


def json_lines(lines):
    return "".join(
        json.dumps({"MESSAGE": line, "__REALTIME_TIMESTAMP": MICRO, "_SOURCE_MONOTONIC_TIMESTAMP": "12345678"}) + "\n"
        for line in lines
    )


def json_bytes(lines):
    return "".join(json.dumps({"_TRANSPORT": "kernel", "MESSAGE": list(line.encode())}) + "\n" for line in lines)


def human(lines):
    """dmesg -H: the date once, then differences, in colours."""
    first, *rest = lines
    return f"\x1b[32m[Feb23 16:24] \x1b[0m{first}\n" + "".join(
        f"\x1b[32m[  +0.000012] \x1b[0m{line}\n" for line in rest
    )


FORMS = {
    "bare": each("{}"),
    "kmsg": each("3,901,12345678,-,caller=T42;{}"),
    "kmsg-dictionary": each("3,901,12345678,-;{}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:99:00.0"),
    "dmesg": each("[   12.345678] {}"),
    "dmesg-caller": each("[   12.345678] [    T42] {}"),
    "dmesg-raw": each("<3>[   12.345678] {}"),
    "dmesg-T": each("[Sun Feb 23 16:24:18 2025] {}"),
    "dmesg-T-monday": each("[Mon Feb 24 16:24:18 2025] {}"),
    "dmesg-x": each("kern  :err   : [   12.345678] {}"),
    "dmesg-x-iso": each("kern  :warn  : 2025-01-21T04:41:44,285060+00:00 {}"),
    "dmesg-H": human,
    "journal-short": each("Feb 23 16:24:18 node07 kernel: {}"),
    "journal-short-precise": each("Feb 23 16:24:18.123456 node07 kernel: {}"),
    "journal-short-iso": each("2025-02-23T16:24:18+0000 node07 kernel: {}"),
    "journal-short-iso-precise": each("2025-02-23T16:24:18.123456+00:00 node07 kernel: {}"),
    "journal-short-full": each("Sun 2025-02-23 16:24:18 UTC node07 kernel: {}"),
    "journal-short-monotonic": each("[   12.345678] node07 kernel: {}"),
    "journal-short-unix": each("1740327858.123456 node07 kernel: {}"),
    "journal-json": json_lines,
    "journal-json-bytes": json_bytes,
    "syslog": each("Feb 23 16:24:18 node07 kernel: [   12.345678] {}"),
    "syslog-iso": each("2025-02-23T16:24:18.285060+00:00 node07 kernel: [   12.345678] {}"),
    "syslog-priority": each("<3>Feb 23 16:24:18 node07 kernel: {}"),
    "syslog-5424": each("<3>1 2025-02-23T16:24:18.285Z node07 kernel - - - {}"),
    "tag-only": each("kernel: {}"),
    "quoted": each("> [   12.345678] {}"),
    "quoted-mail": each(">> > Feb 23 16:24:18 node07 kernel: {}"),
    "markdown": lambda lines: "```\n" + each("    [   12.345678] {}")(lines) + "```\n",
    "collector": each("diff:371;{}"),
    "joined": lambda lines: "Feb 23 16:24:18 node07 kernel: " + "#012".join(lines) + "\n",
    "joined-kmsg": lambda lines: "3,901,12345678,-;" + "\\x0a".join(lines) + "\n",
    "windows": lambda lines: each("[   12.345678] {}")(lines).replace("\n", "\r\n"),
}


def findings(data):
    """What the check of a live host's kernel log finds in a pasted one."""
    return list(check.of_log(read(data)))


def stated(text):
    return [(f.subject, f.verdict, f.seen, f.cause) for f in findings(text.encode())]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_findings(form):
    assert stated(FORMS[form](LINES)) == stated(FORMS["bare"](LINES))
    assert len(stated(FORMS[form](LINES))) == 3


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("tag-only",)])
def test_every_form_gives_the_same_of_a_sentence_over_three_lines(form):
    assert [(subject, cause) for subject, _, _, cause in stated(FORMS[form](SENTENCE))] == [
        ("gpu:0000:b3:00.0", "gpu-lost")
    ]


def test_later_lines_of_a_message_are_indented_by_dmesg_and_journalctl():
    for prefix in ("[ 1843.308145] ", "Feb 23 16:24:18 node07 kernel: "):
        text = prefix + ("\n" + " " * len(prefix)).join(SENTENCE) + "\n"
        assert [row[0] for row in stated(text)] == ["gpu:0000:b3:00.0"]


@pytest.mark.parametrize(
    ("form", "seconds", "clock"),
    [
        ("kmsg", 12.345678, None),
        ("dmesg", 12.345678, None),
        ("dmesg-T", None, "Sun Feb 23 16:24:18 2025"),
        ("dmesg-T-monday", None, "Mon Feb 24 16:24:18 2025"),
        ("journal-short", None, "Feb 23 16:24:18"),
        ("syslog-iso", 12.345678, "2025-02-23T16:24:18.285060+00:00"),
        ("journal-short-full", None, "Sun 2025-02-23 16:24:18 UTC"),
        ("journal-json", 12.345678, MICRO),
    ],
)
def test_times_are_kept(form, seconds, clock):
    """For the first and the last occurrence."""
    assert read(FORMS[form]((XID,)).encode()).lines == (KernelLine(text=XID, seconds=seconds, clock=clock),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU0 GPU1\nGPU0 X NV18\n",
        "+-----+\n| NVIDIA-SMI 580.65.06   Driver Version: 580.65.06 |\n",
        "node07:1234:5678 [0] NCCL INFO Bootstrap : Using eth0\n",
        '{"MESSAGE',
        "# nThread 1 nGpus 8 minBytes 8\n#       size         count      type   redop    root     time   algbw\n",
    ],
)
def test_what_is_no_kernel_log_is_one_clear_line(text):
    with pytest.raises(ImportProblem) as problem:
        read(text.encode())

    assert "\n" not in str(problem.value)
    assert len(str(problem.value)) < 400


@pytest.mark.parametrize(
    "damage",
    [b"\xff\xfd", b"\x1b[31m", b"\x1b]0;title\x07", b"\r\n", b"\xe2\x80\x8b"],
    ids=repr,
)
def test_damaged_logs_are_read(damage):
    data = damage + f"[    1.000000] Linux\n[   12.345678] {XID}\n".encode() + damage

    assert [f.cause for f in findings(data)] == ["gpu-lost"]
