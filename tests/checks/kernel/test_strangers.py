"""A kernel log passes only where every line about GPUs, the host's health or the end of a job is known as harmless."""

from pathlib import Path

import pytest

from gpucheck.checks.kernel import log as check
from gpucheck.checks.kernel.log import _family, _known
from gpucheck.host.kernel_log import ABOUT_GPUS
from gpucheck.imports import read_all
from gpucheck.imports.logs import log_of
from gpucheck.knowledge.messages import families, trouble
from gpucheck.model import KernelLog, Verdict
from gpucheck.run.pastes import diagnosis
from tests.checks.kernel.logs import judged
from tests.imports.logs import read
from tests.shared import from_yaml, sampled

DATA = Path(__file__).parents[2] / "data" / "kernel_log"
HEALTHY = [from_yaml(path) for path in sorted((DATA / "healthy").glob("*.yml"))]
TROUBLE = from_yaml(DATA / "trouble.yml")["lines"]
BENIGN = from_yaml(DATA / "benign.yml")["lines"]
CASES = [from_yaml(path) for path in sorted((DATA / "cases").glob("*.yml"))]
BOOT = "[    0.000001] Linux version 6.8.0\n"
NEW = "[  400.000000] NVRM: aPhraseOfTheYear2031: seven of nine"
RANK = (Verdict.PASS, Verdict.UNKNOWN, Verdict.WARN, Verdict.FAIL)


def diagnosed(text):
    return diagnosis([read_all(text.encode(), "log")], sources=("log",))


def found_in(text):
    return list(check.of_log(read(text.encode())))


def rank(findings):
    return max(RANK.index(finding.verdict) for finding in findings)


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: str(case["id"]))
def test_the_log_of_a_healthy_machine_passes(case):
    """As a paste and on a live host, whose reader keeps fewer lines."""
    found = diagnosed(case["raw"])
    kept = read(case["raw"].encode()).lines
    live = KernelLog(lines=tuple(line for line in kept if ABOUT_GPUS.search(line.text)), source="/dev/kmsg")

    assert case["source"]
    assert found.verdict is Verdict.PASS
    assert [f.verdict for f in check.of_log(live)] == [Verdict.PASS]


@pytest.mark.parametrize("row", TROUBLE, ids=lambda row: row["line"][:60])
def test_a_line_of_trouble_is_never_a_pass(row):
    """Alone, among the lines of a healthy boot, without its time, and on a live host."""
    alone, healthy = f"{BOOT}{row['line']}\n", HEALTHY[0]["raw"]
    _, line = read(alone.encode()).lines

    assert row["source"]
    for text in (alone, alone + healthy, f"{healthy}{line.text}\n"):
        assert diagnosed(text).verdict is not Verdict.PASS
    assert ABOUT_GPUS.search(line.text)
    assert [finding.verdict for finding in judged(line.text)] != [Verdict.PASS] or "pcieport" in line.text


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("NVRM: aPhraseOfTheYear2031: seven of nine", Verdict.UNKNOWN),
        ("NVRM: aPhraseOfTheYear2031: it failed", Verdict.WARN),
        ("nvidia 0000:3b:00.0: something new", Verdict.UNKNOWN),
        ("nvidia-nvswitch7: something new", Verdict.UNKNOWN),
        ("nv-fabricmanager[12]: something new", Verdict.UNKNOWN),
        ("mlx5_core 0000:5c:00.0: something new", Verdict.UNKNOWN),
        ("pcieport 0000:00:01.0: AER: something new", Verdict.UNKNOWN),
        ("mce: something new", Verdict.UNKNOWN),
        ("EDAC MC0: something new", Verdict.UNKNOWN),
        ("NMI watchdog: something new", Verdict.UNKNOWN),
        ("thermal thermal_zone0: something failed", Verdict.WARN),
        ("[Hardware Error]: something is fatal", Verdict.WARN),
    ],
)
def test_a_line_of_a_family_that_no_table_has_is_quoted(line, verdict):
    (finding,) = found_in(f"[   12.000000] {line}\n")

    assert finding.verdict is verdict
    assert finding.code == ("kernel.line-of-trouble" if verdict is Verdict.WARN else "kernel.line-not-known")
    assert finding.evidence == (line,)
    assert finding.cause is None
    assert finding.steps


def test_the_gpu_that_the_line_names_is_the_subject():
    (finding,) = judged("nvidia 0000:3b:00.0: something new")

    assert finding.subject == "gpu:0000:3b:00.0"


def test_many_lines_of_a_kind_are_one_quote_with_their_number():
    (finding,) = found_in("".join(f"[  {n}.0] NVRM: counter {n}\n" for n in range(100, 150)))

    assert finding.seen == "50 lines about the NVIDIA driver or its services not recognized"
    assert finding.evidence == ("NVRM: counter 100", "and 49 lines more")


@pytest.mark.parametrize(
    "line",
    [
        "usb 1-1: new high-speed USB device number 3 using xhci_hcd",
        "EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
        "node07 trainer[12]: RuntimeError: NVRM: printed by a program",
        "Modules linked in: nvidia_uvm(PO) nvidia_drm(PO) nvidia_modeset(PO) nvidia(PO)",
        " os_acquire_rwlock_write+0x35/0x50 [nvidia]",
        "gnome-shell[900]: segfault at 0 ip 00007f sp 00007f error 4 in libgjs.so.0[7f]",
    ],
)
def test_lines_of_no_family_are_not_looked_at(line):
    assert _family(line) is None


def test_a_link_that_is_up_again_is_harmless():
    """How often it went down is the subject of nic-flaps."""
    down, up = (f"mlx5_core 0000:21:00.1 eth1: Link {state}\n" for state in ("down", "up"))

    assert [f.verdict for f in found_in(f"[86400.2] {down}[86404.2] {up}")] == [Verdict.PASS]
    assert [f.verdict for f in found_in(f"[86400.2] {up}[86404.2] {down}")] == [Verdict.WARN]


def test_a_port_without_a_cable_is_harmless_only_while_the_host_boots():
    """Later, a cable was pulled or a module failed."""
    line = "mlx5_core 0000:21:00.1: Port module event: module 1, Cable unplugged"

    assert [f.verdict for f in found_in(f"[   24.2] {line}\n")] == [Verdict.PASS]
    assert [f.verdict for f in found_in(f"[86400.2] {line}\n")] == [Verdict.UNKNOWN]
    assert [f.verdict for f in found_in(f"Mar 03 18:39:19 node07 kernel: {line}\n")] == [Verdict.UNKNOWN]


def test_the_details_of_an_error_are_harmless_only_next_to_it():
    detail = "[  401.0] pcieport 0000:00:03.1:    [12] Timeout\n[  401.0] pcieport 0000:00:03.1: AER: TLP Header: 1\n"
    error = (
        "[  401.0] pcieport 0000:00:03.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)\n"
    )

    assert [f.cause for f in found_in(error + detail)] == ["pcie-errors"]
    assert [f.verdict for f in found_in(detail)] != [Verdict.PASS]


@pytest.mark.parametrize("family", [pytest.param(family, id=family.key) for family in families()])
def test_a_family_states_where_its_harmless_lines_were_read(family):
    known = _known(family.key)

    assert family.title
    assert family.steps
    assert all(row.source and row.says for row in family.harmless)
    assert not known.plain.match("")
    assert "| " not in trouble()


def test_every_line_of_a_family_holds_one_of_its_words():
    """The words are searched first, in logs of a hundred megabytes too."""
    lines = [row["line"] for row in (*TROUBLE, *BENIGN)] + [x for case in HEALTHY for x in case["raw"].splitlines()]
    for text in lines:
        for family in families():
            if _known(family.key).patterns.search(text):
                assert any(word in text for word in family.words), (family.key, text)


@pytest.mark.parametrize("case", sampled(CASES, lambda n, _: n % 4 == 0), ids=lambda case: case["id"])
def test_less_of_a_log_is_never_a_pass_unless_the_evidence_itself_is_gone(case):
    """Every single line is left out once."""
    lines = case["raw"].splitlines()
    before = found_in(case["raw"])
    if rank(before) == 0:
        return
    evidence = " ".join(text for finding in before for text in finding.evidence)
    for at, line in enumerate(lines):
        said = [one.text.strip()[:200] for one in log_of([BOOT.strip(), line]).lines[1:]]
        rest = "\n".join([BOOT.strip(), *lines[:at], *lines[at + 1 :]])
        if not any(text in evidence for text in said):
            assert rank(found_in(rest)) > 0, line


@pytest.mark.parametrize("case", sampled(CASES, lambda n, _: n % 4 == 1), ids=lambda case: case["id"])
def test_one_more_line_that_no_table_has_never_makes_it_better(case):
    """It is put into every place of the log."""
    lines = case["raw"].splitlines()
    before = max(rank(found_in(case["raw"])), RANK.index(Verdict.UNKNOWN))
    for at in range(len(lines) + 1):
        after = found_in("\n".join([*lines[:at], NEW, *lines[at:]]))
        assert rank(after) >= before, at
