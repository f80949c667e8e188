"""A report or a diagnosis as Markdown: that it is what GitHub reads, and that nobody is named."""

import re

import msgspec
import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from gpucheck.cli._shared.shown import redaction_of
from gpucheck.model import System
from gpucheck.model.diagnosis import UnreadRange
from gpucheck.model.finding import Step
from gpucheck.model.record import RECORD, stored
from gpucheck.render.findings import deciding, worst_first
from gpucheck.render.formats import render
from gpucheck.render.write.markdown import Markdown, table
from tests.machines import h100, whole_host
from tests.render.pages import DIAGNOSES
from tests.render.reports import finding, healthy, hostile, report, sick
from tests.render.views import diagnosis_markdown

SERIAL = "1650521012345"
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
    text = render(made, "markdown")
    found = tables(text)

    # The line under a header is no row; a line that a parser does not take into a table would be missing.
    assert sum(map(len, found)) + len(found) == lines_of_tables(text)
    assert all(len(row) == len(rows[0]) for rows in found for row in rows)
    assert not any(token.type.startswith("html") for token in PARSER.parse(text))


def test_no_text_of_a_host_has_a_meaning_in_markdown():
    kinds = {child.type for token in PARSER.parse(render(hostile(), "markdown")) for child in token.children or ()}

    assert kinds <= {"text", "text_special", "strong_open", "strong_close", "code_inline", "softbreak"}


POWER = Step(command="nvidia-smi -i 0000:01:00.0 -pl 700", changes=True)
RESET = Step(command="nvidia-smi --gpu-reset -i 0", changes=True)


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({"cause": "power-limit-lowered", "steps": (POWER,)}, "nvidia-smi -q -d POWER"),
        ({"cause": "gpu-lost", "steps": (RESET,)}, "nvidia-smi -L; dmesg | grep -e RmInitAdapter -e Xid"),
        ({"cause": "driver-bug", "fix": "update"}, "gpucheck explain driver-bug"),
        ({"cause": None, "confidence": None, "steps": (RESET,)}, ""),
        ({"cause": "x; reboot", "fix": "look"}, ""),
    ],
)
def test_the_command_never_changes_the_machine(fields, command):
    (group,) = worst_first([finding(**fields)])

    assert deciding(group) == command


def planted(**fields):
    """A report in which a host, a domain, users, addresses, a serial number and UUIDs are named."""
    told = {
        "seen": f"process 7 of user alice on trainbox17.example.edu uses {UUID}",
        "why": "trainbox17 logs to 10.20.30.40 and 00:1b:21:aa:bb:cc; board serial number 1320221034567",
        "fix": "ls /home/alice/jobs; mail bob@example.edu; gpucheck verify --only nvlink",
        "cause": None,
        "confidence": None,
    }
    made = report(finding(**told), **{"topology": sick(8).topology, **fields})
    system = System(**{**msgspec.structs.asdict(made.system), "hostname": "trainbox17"})
    return replace(made, host="trainbox17", system=system, not_proven=("copies on trainbox17",))


SECRETS = (
    "trainbox17", "example.edu", "alice", "bob", "10.20.30.40", "00:1b:21", "1320221034567", "5ec2f213", "42946bc64825",
)  # fmt: skip


def test_nobody_and_no_machine_is_named():
    machine = sick(2).topology
    gpu = replace(h100(0), pci_bus_id=machine.gpus[0].pci_bus_id, health=replace(h100(0).health, serial=SERIAL))
    made = planted(topology=machine, measurements={RECORD: stored(whole_host(gpu), None)})
    text = render(made, "markdown", change=redaction_of(made))

    assert SERIAL in render(made, "markdown")
    assert [secret for secret in (*SECRETS, SERIAL) if secret in text] == []
    assert "0000:" in text
    assert "580.95.05" in text


def test_a_short_host_name_is_left_out():
    made = report(finding(), host="n1")

    assert "n1" in render(made, "markdown")
    assert "n1" not in render(made, "markdown", change=redaction_of(made))


def test_a_path_of_the_kernel_is_no_folder_of_a_user():
    made = report(finding("iommu", "host", cause="iommu-translation", fix="boot with iommu=pt"))

    assert r"`cat /sys/kernel/iommu_groups/*/type | sort | uniq -c`" in render(
        made, "markdown", change=redaction_of(made)
    )


def test_code_survives_pipes_and_backticks():
    page = Markdown()
    text = "\n".join(table(("a", "b"), [[page.code("x | y"), page.code("echo `id`")]]))

    assert tables(text)[0][1] == ["x | y", "echo `id`"]
    assert page.code("x | y", in_table=False) == "`x | y`"


def test_markdown_names_the_cause_and_the_other_suspects():
    text = diagnosis_markdown(DIAGNOSES["winner"])

    assert "- cause: pcie-width-reduced (likely)" in text
    assert "- or: uplink-downgraded: lspci" in text
    assert "- confirm: `lspci -vv -s 0000:13:00.0`" in text


def test_markdown_names_lines_that_were_not_read_without_their_text():
    unread = UnreadRange(source="a.txt", first_line=10, last_line=11, text="secret: error: 7", why="")
    text = diagnosis_markdown(msgspec.structs.replace(DIAGNOSES["winner"], unread=(unread,)))

    assert "lines 10-11" in text
    assert "secret" not in text


def test_hostile_words_are_no_markdown():
    text = diagnosis_markdown(DIAGNOSES["hostile"])
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # commands

    assert not re.search(r"(?<!\\)[<`]", text)
    assert all(line.startswith(("|---", "| ", "|--")) for line in text.split("\n") if line.startswith("|"))
