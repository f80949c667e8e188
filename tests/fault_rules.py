"""What a report of a machine with one fault must say, and what it may not."""

from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any

from gpucheck import simulator
from gpucheck.knowledge import root_causes
from gpucheck.model import Finding, Verdict, follows
from gpucheck.simulator.machine import Machine, build

LOUD = (Verdict.WARN, Verdict.FAIL)
# Numbers name no cause for certain; compared bytes and clocks with their reasons do.
MEASURED = {*root_causes().evidence["measured"]} - {"p2p-integrity", "compute-results", "compute-clocks"}


# Who looks at a cause itself. Whoever blames it from elsewhere is refuted where these find nothing.
DIRECT = {
    "acs-redirect": {"acs"},
    "iommu-translation": {"iommu", "kernel-log"},
    "pcie-width-reduced": {"pcie-link", "links-under-load"},
    "pcie-link-downgraded": {"pcie-link", "links-under-load"},
    "uplink-downgraded": {"pcie-path"},
    "nvlink-missing": {"nvlink"},
    "nvlink-down": {"nvlink", "kernel-log"},
    "nvlink-errors": {"nvlink-errors", "links-under-load"},
    "pcie-errors": {"pcie-errors", "links-under-load"},
    "fabric-manager-down": {"fabric"},
    "fabric-version-mismatch": {"fabric"},
    "gpu-lost": {"inventory", "kernel-log"},
    "ecc-uncorrected": {"memory-errors", "kernel-log"},
    "row-remap": {"memory-errors", "kernel-log"},
    "throttled": {"throttle", "links-under-load", "compute-clocks"},
    "mig-enabled": {"mig"},
    "compute-mode-exclusive": {"compute-mode"},
    "rebar-off": {"bar1"},
    "driver-mismatch": {"driver"},
    "driver-not-loaded": {"driver", "next-boot"},
    "module-flavour-wrong": {"module-flavour"},
    "gpu-busy": {"processes"},
    "power-limit-lowered": {"power-limit", "compute-clocks"},
    "clock-limited": {"clock-limit", "compute-clocks"},
    "persistence-off": {"persistence"},
}


def subjects(words: str, machine: Machine) -> set[str]:
    """What a row calls a subject, as the findings name it."""
    kind, _, which = words.partition(":")
    ids = [gpu.function.bus_id for gpu in machine.gpus]
    if kind == "every-gpu":
        return {f"gpu:{bus_id}" for bus_id in ids}
    if kind == "gpu":
        return {f"gpu:{ids[int(which)]}"}
    if kind == "port":
        return {f"link:{machine.gpus[int(which)].function.parent}"}
    if kind == "root":
        return {f"link:{machine.chain(ids[int(which)])[0].bus_id}"}
    if kind == "switch":
        switches = [function for function in machine.functions.values() if function.kind == "nvswitch"]
        return {f"link:{switches[int(which)].bus_id}"}
    if kind == "nic":
        return {f"nic:{machine.nic(int(which)).bus_id}"}
    if kind == "pair":
        a, b = (ids[int(number)] for number in which.split("-"))
        return {f"pair:{a}-{b}"}
    return {words}


@cache
def built(name: str) -> Machine:
    """The machine of a profile, without a fault."""
    profile = simulator.load(name)
    return build(profile, profile.driver.state())


# What a healthy machine is warned of, by profile.
OWN = {"a100-mig-x8": ("mig", "mig-enabled")}


def judge(row: dict[str, Any], name: str, findings: tuple[Finding, ...], steps: str = "") -> None:
    """Exactly the findings that must be there lead, one about every subject; all else that is loud points to them.

    steps: of a longer run than that of the row, which may find the fault to be worse.
    """
    wanted = subjects(row["subject"], built(name)) if row["verdict"] in ("warn", "fail") else set()
    own = OWN.get(name)
    of_row = own == (row["check"], row["cause"])
    loud = [
        f for f in findings if f.verdict in LOUD and ((f.check, f.cause) != own or (of_row and f.subject in wanted))
    ]
    leads = [f for f in loud if not follows(f)]
    told = [(f.check, f.subject, f.cause) for f in leads]
    expected = (
        [(row["check"], subject, row["cause"]) for subject in wanted] if row["verdict"] in ("warn", "fail") else []
    )
    assert sorted(map(str, told)) == sorted(map(str, expected)), [(f.check, f.subject, f.cause, f.seen) for f in loud]
    verdicts = {f.verdict.value for f in leads or findings if f.check == row["check"]}
    assert row["verdict"] in verdicts or (steps and verdicts == {"fail"}), verdicts

    places = {(f.check, f.subject) for f in leads}
    parts = [f for f in loud if follows(f)]
    assert {(f.because_of, f.because_of_subject) for f in parts} <= places
    assert {*row.get("also", ())} <= {f.check for f in parts}
    assert not [f for f in leads if f.confidence == "certain" and f.check in MEASURED]
    no_judgement(findings, may={row["check"], *row.get("unknown", ())})
    assert not (found := refuted(findings)), (
        f"findings (check, cause, subject) whose cause a check of DIRECT finds in order on the same subject: {found}. "
        "Name another cause, or correct what the check in DIRECT of this file reads of the machine."
    )


def no_judgement(findings: tuple[Finding, ...], *, may: AbstractSet[str] = frozenset()) -> None:
    """No check broke, and none is UNKNOWN but those that may be, and those that name the finding that stopped them."""
    broken = [(f.check, f.seen, f.evidence) for f in findings if "defect of gpucheck" in f.why]
    assert not broken
    roots = {f.check for f in findings if f.verdict in LOUD} | may
    unknown = [f for f in findings if f.verdict is Verdict.UNKNOWN and f.check not in may]
    unexplained = [f for f in unknown if f.because_of not in roots]
    assert not unexplained, [(f.check, f.subject, f.seen, f.why) for f in unexplained]


def refuted(findings: tuple[Finding, ...]) -> list[tuple[str, str | None, str]]:
    """Findings that blame what the check that looks at it finds in order, in this very report."""
    return [
        (f.check, f.cause, f.subject)
        for f in findings
        if f.verdict in LOUD and f.check not in DIRECT.get(f.cause or "", {f.check}) and _in_order(f, findings)
    ]


def _in_order(blaming: Finding, findings: tuple[Finding, ...]) -> bool:
    """Whether everyone who looks at the cause, and has something to say about the subject, says that it is not so.

    A bare-metal machine on which no bridge lies between two GPUs has none that could redirect, so a SKIP counts there.
    """
    looked = [f for f in findings if f.check in DIRECT[blaming.cause or ""] and _same_place(blaming, f)]
    clear = (Verdict.PASS, Verdict.SKIP) if blaming.cause == "acs-redirect" else (Verdict.PASS,)
    return bool(looked) and all(f.verdict in clear for f in looked)


def _same_place(a: Finding, b: Finding) -> bool:
    """Whether two findings may be about the same thing; the host is everything on it."""
    one, other = (set(f.subject.partition(":")[2].replace("pair:", "").split("-")) for f in (a, b))
    return "host" in (a.subject, b.subject) or bool(one & other)
