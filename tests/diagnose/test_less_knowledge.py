"""Less knowledge never makes a better verdict: a fact taken away turns FAIL, WARN or UNKNOWN into PASS nowhere.

Except for the fact that is the evidence itself: without the slow number there is no slow number. Which facts a finding
stands on is stated by the name of its check, in EVIDENCE.
"""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.foreign.documents import DocumentProblem
from gpucheck.model import Finding, Verdict
from tests.diagnose.cases import PLAIN, case
from tests.diagnose.results import verdict
from tests.shared import sampled

NUMBERS = {"measured.p2p_uni_gb_s", "measured.p2p_bidir_gb_s", "measured.by_class"}
STAGED = {"measured.staged_uni_gb_s", "measured.staged_bidir_gb_s"}
LINKS = {"gpus.pcie", "gpus.path", "measured.under_load"}
ACCESS = {"p2p_access", "p2p_status"}
DATA = {"measured.integrity_bad_pairs", "measured.damage", "measured.damaged", "measured.bytes_compared"}
EVIDENCE: dict[str, set[str]] = {
    "p2p-bandwidth": NUMBERS,
    "p2p-both-ways": NUMBERS,
    "p2p-latency": {"measured.p2p_latency_us"},
    # Copies of denied pairs are staged copies, whatever they are called.
    "staged-copies": STAGED | NUMBERS,
    "host-copies": {"measured.host_device"},
    "simultaneous-copies": {"measured.flows"},
    "collectives-bandwidth": {"measured.collectives"},
    "collectives-transport": {"measured.collectives"} | NUMBERS,
    "p2p-integrity": DATA | {"measured.collectives"},
    "p2p-copies": {"measured.hang", "measured.failures"},
    "pcie-link": LINKS,
    "uplink": LINKS | {"uplinks"},
    "links-under-load": {"measured.under_load"},
    "nvlink-links": {"gpus.nvlinks", "matrix"},
    # What NVLink joins by the matrix or the product and the driver denies; rates of copies through host memory.
    "p2p-status": ACCESS | NUMBERS | {"matrix", "gpus.model"},
    "iommu": {"host.iommu"} | ACCESS,
    "acs": {"host.acs", "host.acs_redirect", "gpus.path"} | ACCESS,
    "environment": {"environment"},
}


def facts(seen: dict[str, Any]) -> Iterator[str]:
    """Yield the names of all facts: ``matrix``, ``gpus.model``, ``host.iommu``, ``measured.flows``."""
    for name, value in seen.items():
        if name in ("host", "measured"):
            yield from (f"{name}.{key}" for key in value)
        elif name == "gpus":
            rows = value if isinstance(value, list) else [value]
            yield from sorted({f"gpus.{key}" for row in rows for key in row} - {"gpus.count"})
        else:
            yield name


def without(seen: dict[str, Any], fact: str) -> dict[str, Any]:
    """The observations without this fact, about all GPUs."""
    rest = deepcopy(seen)
    name, _, key = fact.partition(".")
    rows = rest[name] if isinstance(rest[name], list) and key else [rest[name]]
    if not key:
        del rest[name]
    for row in rows if key else ():
        row.pop(key, None)
    return rest


def improved(seen: dict[str, Any]) -> dict[str, str]:
    """The facts without which the verdict is PASS although it was not, with both verdicts."""
    before = diagnose(read(json.dumps(seen)))
    if verdict(before) is Verdict.PASS:
        return {}
    found = {}
    for fact in facts(seen):
        try:
            after = diagnose(read(json.dumps(without(seen, fact))))
        except DocumentProblem:
            continue  # a matrix that nothing gives a size
        if after and verdict(after) is Verdict.PASS and not stands_on(before, fact):
            found[fact] = f"{verdict(before).value} to {verdict(after).value}"
    return found


def stands_on(found: tuple[Finding, ...], fact: str) -> bool:
    """Whether every problem is about this fact."""
    problems = [one for one in found if one.verdict not in (Verdict.PASS, Verdict.SKIP)]
    return all(fact in EVIDENCE.get(one.check, ()) for one in problems)


@pytest.mark.parametrize("name", sampled(PLAIN, lambda number, _: number % 4 == 0))
def test_no_public_machine_is_better_with_less(name: str) -> None:
    assert not improved(case(name)["observations"])
