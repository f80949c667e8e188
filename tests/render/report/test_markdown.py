"""The rig card: what it says, that it is short, that its Markdown is what GitHub reads, and that nobody is named."""

import msgspec
import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from gpucheck.cli._shared.shown import redaction_of
from gpucheck.model import System, Verdict
from gpucheck.model.finding import Step
from gpucheck.model.record import RECORD, stored
from gpucheck.render.formats import render
from gpucheck.render.subjects.card import FINDINGS, MOST_LINES
from gpucheck.render.write.markdown import Markdown, table
from tests.machines import h100, whole_host
from tests.render.reports import copies, finding, healthy, hostile, passed, report, sick
from tests.render.views import report_card

UUID = "GPU-5ec2f213-af40-cb06-a2d9-42946bc64825"
PARSER = MarkdownIt("commonmark").enable("table")


def tables(text):
    """The cells of every table as a parser reads them, the header first."""
    found, row = [], None
    for token in PARSER.parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            row = []
            found[-1].append(row)
        elif token.type == "inline" and row is not None:
            row.append("".join(part.content for part in token.children))
        elif token.type == "tr_close":
            row = None
    return found


def lines_of_tables(text):
    return sum(line.startswith("|") for line in text.splitlines())


@pytest.mark.parametrize("made", [sick(), healthy(), hostile(), report()], ids=["sick", "healthy", "hostile", "empty"])
def test_every_table_is_one_to_a_parser(made):
    text = report_card(made)
    found = tables(text)

    # The line under a header is no row; a line that a parser does not take into a table would be missing.
    assert sum(map(len, found)) + len(found) == lines_of_tables(text)
    assert all(len(row) == len(rows[0]) for rows in found for row in rows)
    assert all(rows[0][0] for rows in found)
    assert not any(token.type.startswith("html") for token in PARSER.parse(text))


def test_no_text_of_a_host_has_a_meaning_in_markdown():
    kinds = {child.type for token in PARSER.parse(report_card(hostile())) for child in token.children or ()}

    assert kinds <= {"text", "text_special", "strong_open", "strong_close", "code_inline", "softbreak"}


POWER = Step(command="nvidia-smi -i 0000:01:00.0 -pl 700", changes=True)
RESET = Step(command="nvidia-smi --gpu-reset -i 0", changes=True)


def test_findings_come_with_cause_and_a_command_that_only_reads():
    (row,) = [row for row in tables(report_card(sick()))[0] if "nvlink:" in row[1]][:1]

    assert row[0] == "FAIL"
    assert row[2] == "nvlink-down (certain)"
    assert row[3] == "dmesg | grep -e Xid"


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({"cause": "power-limit-lowered", "steps": (POWER,)}, "nvidia-smi -q -d POWER"),
        ({"cause": "gpu-lost", "steps": (RESET,)}, "nvidia-smi -L; dmesg | grep -e RmInitAdapter"),
        ({"cause": "driver-bug", "fix": "update"}, "gpucheck explain driver-bug"),
        ({"cause": None, "confidence": None, "fix": "update"}, "gpucheck verify --only nvlink -v"),
        ({"cause": None, "confidence": None, "steps": (RESET,)}, "gpucheck verify --only nvlink"),
        ({"check": "p2p-latency", "cause": None, "confidence": None, "fix": "look"}, "gpucheck bandwidth -v"),
        ({"cause": "x; reboot", "fix": "look"}, "gpucheck verify --only nvlink -v"),
    ],
)
def test_the_command_never_changes_the_machine(fields, command):
    shown = tables(report_card(report(finding(**fields))))[0][1][3]

    assert shown.startswith(command)


def test_pairs_are_allowed_working_correct_and_measured_against_the_expectation():
    machine = sick().topology
    p2p = copies([gpu.pci_bus_id for gpu in machine.gpus][:4], slow={(1, 2), (2, 1)})
    p2p["observations"] = {"p2p_access": True, "measured": {"integrity_bad_pairs": [[1, 2]]}}
    header, row, host = tables(report_card(report(measurements={"p2p": p2p})))[-1]
    shown = dict(zip(header, row, strict=True))

    assert (shown["path"], shown["pairs"], shown["P2P allowed"], shown["P2P works"]) == ("NV18", "6", "yes", "yes")
    assert shown["data correct"] == "no, 1 of 12 wrong"
    assert shown["one direction"] == "190 to 380 (50 to 99 %, 2 of 12 below)"
    assert shown["expected"] == "382 (at least 356)"
    assert host[0] == "host memory, 1 GPU"


def test_gpus_that_are_alike_are_one_row():
    machine = sick(8).topology
    gpus = [replace(h100(gpu.index), pci_bus_id=gpu.pci_bus_id) for gpu in machine.gpus]
    gpus[3] = replace(gpus[3], health=replace(gpus[3].health, power_limit_w=400.0))
    kept = {RECORD: stored(whole_host(*gpus), None)}
    lowered = finding("power-limit", f"gpu:{machine.gpus[3].pci_bus_id}", Verdict.WARN, seen=400, wanted=700, unit="W")
    rows = tables(report_card(report(lowered, topology=machine, measurements=kept)))[2]

    assert [row[0] for row in rows[1:]] == ["0-2, 4-7 (7 GPUs)", "3"]
    assert "400 W of 700 W" in rows[2]
    assert "Gen5 x16, not under load" in rows[1]


def test_many_findings_and_gpus_are_counted_and_the_card_stays_short():
    machine = sick(72).topology
    many = [
        finding(f"check{n}", f"gpu:{gpu.pci_bus_id}", seen=f"value {n}", why=f"why {n}")
        for n, gpu in enumerate(machine.gpus)
    ]
    p2p = copies([gpu.pci_bus_id for gpu in machine.gpus][:8])
    for n, pair in enumerate(p2p["pairs"]):
        pair["basis"], pair["expected_gb_s"] = f"basis {n}", 300.0 + n
    made = report(
        *many, topology=machine, measurements={"p2p": p2p}, not_proven=("copies, no torch",),
        attributes={"bios": ("1.0",), "board": ("X",), "hold": ("nvidia 580",)},
    )  # fmt: skip
    text = report_card(made, "recorded on Monday")

    assert text.count("\n") <= MOST_LINES
    assert f"and {72 - FINDINGS + 1} findings more" in text
    assert "rows more" in text


def planted(**fields):
    """A report in which a host, a domain, users, addresses, a serial number and UUIDs are named."""
    told = {
        "seen": f"process 7 of user alice on trainbox17.example.edu uses {UUID}",
        "why": "trainbox17 logs to 10.20.30.40 and 00:1b:21:aa:bb:cc; board serial number 1320221034567",
        "fix": "ls /home/alice/jobs; mail bob@example.edu; gpucheck verify --only nvlink",
        "cause": None,
        "confidence": None,
    }
    made = report(finding(**told), topology=sick(8).topology, **fields)
    system = System(**{**msgspec.structs.asdict(made.system), "hostname": "trainbox17"})
    return replace(made, host="trainbox17", system=system, not_proven=("copies on trainbox17",))


SECRETS = (
    "trainbox17", "example.edu", "alice", "bob", "10.20.30.40", "00:1b:21", "1320221034567", "5ec2f213", "42946bc64825",
)  # fmt: skip


def test_nobody_and_no_machine_is_named():
    made = planted()
    text = render(made, "markdown", change=redaction_of(made))

    assert [secret for secret in SECRETS if secret in text] == []
    assert "0000:" in text
    assert "driver 580.95.05" in text
    assert "| host |" not in text


def test_a_path_of_the_kernel_is_no_folder_of_a_user():
    made = report(finding("iommu", "host", cause="iommu-translation", fix="boot with iommu=pt"))

    assert r"`cat /sys/kernel/iommu_groups/*/type \| sort \| uniq -c`" in render(
        made, "markdown", change=redaction_of(made)
    )


def test_code_survives_pipes_and_backticks():
    page = Markdown()
    text = "\n".join(table(("a", "b"), [[page.code("x | y"), page.code("echo `id`")]]))

    assert tables(text)[0][1] == ["x | y", "echo `id`"]
    assert page.code("x | y", in_table=False) == "`x | y`"


def test_passes_with_a_known_cause_are_named():
    known = replace(passed("p2p-status"), cause="geforce-p2p-disabled", confidence="certain", why="no P2P")

    assert tables(report_card(report(known)))[0][1] == [
        "PASS", "p2p-status: 580.95.05", "geforce-p2p-disabled (certain)", "nvidia-smi topo -p2p r",
    ]  # fmt: skip
