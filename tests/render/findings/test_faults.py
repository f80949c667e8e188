"""One fault is one block: what other checks found of it is shown with the finding that leads."""

import click
from msgspec.structs import replace

from gpucheck.model import Finding, Verdict
from gpucheck.run.conclusion import joined
from tests.render.views import lines_of

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


def lines(*findings, **options):
    return [click.unstyle(line) for line in lines_of(joined(findings), BUS, **options)]


def test_a_block_names_the_other_checks_and_shows_their_evidence_once():
    certain = finding("p2p-bandwidth", confidence="certain", action="reset-gpu", owner="node")
    lead = finding("pcie-link", action="contact-support", owner="site")
    found = lines(lead, certain, finding("topology", verdict=Verdict.WARN))

    assert found == [
        f"FAIL    pcie-link  GPU 1 ({BUS[1]}): pcie-link saw it",
        "        why       why pcie-link",
        "        fix       fix pcie-link",
        "        cause     pcie-width-reduced (certain)",
        "        also      p2p-bandwidth: p2p-bandwidth saw it",
        "        also      topology (WARN): topology saw it",
        "        evidence  evidence of pcie-link",
        "        evidence  evidence of p2p-bandwidth",
        "        evidence  evidence of topology",
    ]


def test_the_same_check_of_the_same_thing_adds_its_evidence_only():
    found = lines(finding("pcie-link", seen="8 lanes"), finding("pcie-link", seen="x8", evidence=("read under load",)))

    assert not [line for line in found if line.strip().startswith("also")]
    assert "        evidence  read under load" in found


def test_verbose_has_the_reasons_and_fixes_of_all():
    found = "\n".join(lines(finding("pcie-link"), finding("topology"), verbose=True))

    assert "why topology" in found
    assert "fix topology" in found


def test_the_same_fault_of_all_gpus_is_one_block_and_its_parts_too():
    """The numbers of the second check differ by GPU: the fault does not."""
    both = [f for n in range(8) for f in (finding("pcie-link", n), finding("topology", n, seen=n))]
    found = [replace(one, seen="half", why="why", fix="fix") if one.check == "pcie-link" else one for one in both]
    shown = lines(*found)

    assert [line for line in shown if line[0] != " "] == ["FAIL    pcie-link  all 8 GPUs: half"]
    assert sum(line.strip().startswith("also") for line in shown) == 4
    assert "        also      and 5 more findings" in shown
