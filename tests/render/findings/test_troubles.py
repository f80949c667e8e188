"""One trouble is one block: the findings of several checks about one cause at one place are shown together."""

import click
import pytest
from msgspec.structs import replace

from gpucheck.model import Finding, Verdict, by_trouble
from gpucheck.render.findings.text import blocks

BUS = tuple(f"0000:{n:02x}:00.0" for n in range(0x10, 0x18))


def finding(check, n=1, verdict=Verdict.FAIL, **fields):
    own = {
        "subject": f"gpu:{BUS[n]}",
        "gpu_index": n,
        "seen": f"{check} saw it",
        "cause": "pcie-width-reduced",
        "confidence": "likely",
        "why": f"why {check}",
        "fix": f"fix {check}",
        "evidence": (f"evidence of {check}",),
    }
    return Finding(check=check, verdict=verdict, **{**own, **fields})


def pair(a, b, **fields):
    return finding("p2p-pairs", a, subject=f"pair:{BUS[a]}-{BUS[b]}", peer_index=b, **fields)


def leads(*findings):
    return [(trouble.lead.check, [one.check for one in trouble.also]) for trouble in by_trouble(findings)]


def lines(*findings, **options):
    return [click.unstyle(line) for line in blocks(findings, BUS, **options)]


def test_one_cause_at_one_gpu_is_one_trouble_and_the_worst_leads():
    found = leads(finding("topology", verdict=Verdict.WARN), finding("pcie-link"), finding("p2p-bandwidth"))

    assert found == [("pcie-link", ["topology", "p2p-bandwidth"])]


@pytest.mark.parametrize(
    "other",
    [
        finding("topology", 2),
        finding("topology", cause="uplink-downgraded"),
        finding("topology", cause=None),
        finding("pcie-link", seen="a second finding of the same check"),
        finding("topology", verdict=Verdict.UNKNOWN),
        finding("topology", verdict=Verdict.PASS),
    ],
    ids=["other-gpu", "other-cause", "no-cause", "same-check", "unknown", "pass"],
)
def test_what_is_another_trouble_stays_one(other):
    assert leads(finding("pcie-link"), other) == [("pcie-link", []), (other.check, [])]


def test_slow_pairs_of_the_gpu_belong_to_its_trouble():
    assert leads(pair(1, 2), pair(0, 1), pair(3, 4), finding("pcie-link")) == [
        ("p2p-pairs", []),
        ("pcie-link", ["p2p-pairs", "p2p-pairs"]),
    ]


def test_a_cause_of_the_host_takes_its_gpus_with_it():
    host = finding("fabric", subject="host", gpu_index=None)

    assert leads(finding("nvlink", 1), finding("nvlink", 2), host) == [("fabric", ["nvlink", "nvlink"])]


def test_a_milder_finding_of_the_host_hides_no_failure_of_a_gpu():
    host = finding("kernel-log", subject="host", gpu_index=None, verdict=Verdict.WARN)

    assert leads(host, finding("nvlink", 1), finding("nvlink", 2)) == [
        ("kernel-log", []), ("nvlink", []), ("nvlink", []),
    ]  # fmt: skip


def test_a_block_names_the_other_checks_and_shows_their_evidence_once():
    certain = finding("p2p-bandwidth", confidence="certain", action="reset-gpu", owner="node")
    found = lines(finding("pcie-link", action="none"), certain, finding("topology", verdict=Verdict.WARN))

    assert found == [
        f"FAIL    pcie-link  GPU 1 ({BUS[1]}): pcie-link saw it",
        "        why       why pcie-link",
        "        fix       fix pcie-link",
        "        action    reset-gpu (owner: node)",
        "        cause     pcie-width-reduced (certain)",
        "        also      p2p-bandwidth: p2p-bandwidth saw it",
        "        also      topology (WARN): topology saw it",
        "        evidence  evidence of pcie-link",
        "        evidence  evidence of p2p-bandwidth",
        "        evidence  evidence of topology",
    ]


def test_verbose_has_the_reasons_and_fixes_of_all():
    found = "\n".join(lines(finding("pcie-link"), finding("topology"), verbose=True))

    assert "why topology" in found
    assert "fix topology" in found


def test_the_same_trouble_of_all_gpus_is_one_block_and_its_parts_too():
    """The numbers of the second check differ by GPU: the trouble does not."""
    both = [f for n in range(8) for f in (finding("pcie-link", n), finding("topology", n, seen=n))]
    found = [replace(one, seen="half", why="why", fix="fix") if one.check == "pcie-link" else one for one in both]
    shown = lines(*found)

    assert [line for line in shown if line[0] != " "] == ["FAIL    pcie-link  all 8 GPUs: half"]
    assert sum(line.strip().startswith("also") for line in shown) == 4
    assert "        also      and 5 more findings" in shown
