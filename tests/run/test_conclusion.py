"""One fault is one finding: the evidence nearest to the hardware leads, the others point to it, and none is lost."""

import pytest
from msgspec.structs import replace

from gpucheck.checks import all_checks
from gpucheck.knowledge import causes, root_causes
from gpucheck.model import Finding, Verdict, by_root, counted
from gpucheck.model.host.wiring import WiredFunction, Wiring
from gpucheck.run import verification as run
from gpucheck.run.conclusion import conclude, joined
from gpucheck.run.pastes import _worst_of_each
from gpucheck.run.report import with_findings
from tests.render.reports import report
from tests.topology.servers import topology

BUS = tuple(f"0000:{n:02x}:00.0" for n in range(0x10, 0x18))
WIDTH = "pcie-width-reduced"


def finding(check, n=1, verdict=Verdict.FAIL, **fields):
    own = {"subject": f"gpu:{BUS[n]}", "cause": WIDTH, "confidence": "likely", "why": "w", "fix": "f"}
    return Finding(check=check, verdict=verdict, **{**own, **fields})


def pair(check, a, b, **fields):
    return finding(check, subject=f"pair:{BUS[a]}-{BUS[b]}", **fields)


def leads(*findings, wiring=None):
    """Each leader with the checks that point to it, in the order of the findings."""
    return [(lead.check, [one.check for one in also]) for lead, also in by_root(joined(findings, wiring))[0]]


def test_the_register_leads_the_derived_number_and_the_measured_one():
    found = leads(
        finding("topology", verdict=Verdict.WARN),
        pair("p2p-bandwidth", 0, 1, confidence="likely"),
        finding("pcie-link"),
    )

    assert found == [("pcie-link", ["topology", "p2p-bandwidth"])]


@pytest.mark.parametrize(
    ("nearest", "other", "cause"),
    [
        ("iommu", "p2p-bandwidth", "iommu-translation"),
        ("driver", "kernel-log", "nouveau-loaded"),
        ("memory-errors", "kernel-log", "ecc-uncorrected"),
        ("kernel-log", "topology", WIDTH),
        ("nvlink-links", "p2p-bandwidth", "nvlink-down"),
    ],
)
def test_register_answer_counter_log_derived_measured_lead_in_this_order(nearest, other, cause):
    weaker = finding(nearest, verdict=Verdict.WARN, cause=cause, confidence="possible")

    assert leads(finding(other, cause=cause, confidence="certain"), weaker) == [(nearest, [other])]


def test_a_part_keeps_its_verdict_names_the_leader_and_is_not_counted():
    slow = pair("p2p-bandwidth", 0, 1, seen=5.9)
    concluded = conclude([slow, finding("pcie-link", verdict=Verdict.WARN)])
    part, lead = concluded.findings

    assert (part.verdict, part.because_of, part.because_of_subject) == (Verdict.FAIL, "pcie-link", f"gpu:{BUS[1]}")
    assert (part.seen, part.why, part.fix) == (5.9, "w", "f")
    assert (lead.verdict, lead.because_of) == (Verdict.FAIL, None)
    assert (concluded.verdict, concluded.counts["fail"], concluded.counts["warn"]) == (Verdict.FAIL, 1, 0)


def test_the_leader_has_the_best_evidence_for_its_cause_and_then_no_alternatives():
    aggregate = finding("memory-errors", cause="ecc-uncorrected", confidence="possible")
    (lead, _) = joined([aggregate, finding("kernel-log", cause="ecc-uncorrected", confidence="certain")])

    assert lead.confidence == "certain"


def test_evidence_for_what_follows_is_none_for_the_cause():
    version = finding("fabric", subject="host", cause="fabric-version-mismatch", confidence="likely")
    down = pair("p2p-status", 0, 1, cause="fabric-manager-down", confidence="certain")
    (_, lead) = joined([down, version])

    assert (lead.check, lead.confidence) == ("fabric", "likely")


@pytest.mark.parametrize(
    "other",
    [
        finding("topology", 2),
        finding("topology", cause="uplink-downgraded"),
        finding("topology", cause=None),
        finding("topology", verdict=Verdict.UNKNOWN),
        finding("topology", verdict=Verdict.PASS),
        finding("kernel-log", 3, cause="gpu-lost", confidence="certain"),
        finding("expectations", subject="host"),
        pair("p2p-bandwidth", 2, 3),
    ],
    ids=["other-gpu", "other-cause", "no-cause", "unknown", "pass", "other-fault", "of-the-site", "other-pair"],
)
def test_another_fault_stays_one(other):
    assert leads(finding("pcie-link"), other) == [("pcie-link", []), (other.check, [])]


def test_two_gpus_with_one_cause_are_two_findings_each_with_its_own_parts():
    found = joined([finding("pcie-link", 1), finding("pcie-link", 2), finding("topology", 2), finding("topology", 1)])

    assert [one.because_of_subject for one in found] == [None, None, f"gpu:{BUS[2]}", f"gpu:{BUS[1]}"]


def test_a_cause_of_the_host_takes_its_gpus_with_it():
    host = finding("fabric", subject="host")

    assert leads(finding("nvlink-links", 1), finding("nvlink-links", 2), host) == [
        ("fabric", ["nvlink-links", "nvlink-links"])
    ]


def test_two_readings_of_one_link_are_one_finding_but_two_libraries_are_two():
    """A link has one state; what is wrong with the software of a host may be wrong twice."""
    library = finding("loader", subject="host", cause="library-mismatch")

    assert leads(finding("pcie-link", seen=8), finding("pcie-link", seen="x8")) == [("pcie-link", ["pcie-link"])]
    assert leads(library, replace(library, seen="another library")) == [("loader", []), ("loader", [])]


def test_two_messages_of_a_log_are_two_findings():
    assert leads(finding("kernel-log", seen="one"), finding("kernel-log", seen="other")) == [
        ("kernel-log", []), ("kernel-log", []),
    ]  # fmt: skip


def test_of_one_check_and_one_pair_the_weaker_word_follows():
    read = pair("p2p-status", 0, 1, cause="p2p-unsupported-pair", confidence="certain")
    derived = pair("p2p-status", 0, 1, cause="nvlink-down", confidence="likely")

    assert [one.because_of for one in joined([derived, read])] == ["p2p-status", None]


PORT, ROOT = "0000:0f:00.0", "0000:00:01.0"
UPSTREAM = "0000:0e:00.0"
WIRING = Wiring(
    functions=(
        WiredFunction(bus_id=ROOT, kind="root-port"),
        WiredFunction(bus_id=UPSTREAM, kind="switch-upstream", above=ROOT),
        WiredFunction(bus_id=PORT, kind="switch-downstream", above=UPSTREAM),
        WiredFunction(bus_id=BUS[1], kind="gpu", label="GPU0", above=PORT),
        WiredFunction(bus_id="0000:00:02.0", kind="root-port"),
    )
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (f"link:{PORT}", f"gpu:{BUS[1]}", True),
        (f"link:{ROOT}", f"link:{UPSTREAM}", True),
        (f"link:{UPSTREAM}", f"link:{PORT}", False),
        (f"link:{ROOT}", f"gpu:{BUS[1]}", False),
        (f"link:{ROOT}", "link:0000:00:02.0", False),
    ],
    ids=["port-and-gpu", "two-ends", "both-sides-of-a-switch", "two-links-of-a-path", "two-roots"],
)
def test_the_two_ends_of_a_link_are_one_place(one, other, same):
    found = leads(finding("pcie-errors", subject=one), finding("kernel-log", subject=other), wiring=WIRING)

    assert (len(found) == 1) == same


def test_a_cause_explains_what_follows_from_it_at_its_place():
    uplink = finding("pcie-path", subject=f"link:{ROOT}", cause="uplink-downgraded")
    slow = finding("host-copies", subject="host", cause=None, confidence=None, verdict=Verdict.WARN)

    assert leads(slow, uplink) == [("pcie-path", ["host-copies"])]
    assert len(leads(slow, replace(uplink, confidence="possible"))) == 2
    assert len(leads(replace(slow, cause="throttled", confidence="likely"), uplink)) == 2


def test_what_follows_takes_its_own_parts_to_the_root():
    chain = [
        pair("p2p-bandwidth", 0, 1, cause="fabric-manager-down", confidence="possible"),
        pair("p2p-status", 0, 1, cause="fabric-manager-down"),
        finding("fabric", subject="host", cause="fabric-version-mismatch", confidence="certain"),
    ]

    assert leads(*chain) == [("fabric", ["p2p-bandwidth", "p2p-status"])]


def test_a_part_without_its_leader_stands_alone():
    """A report that was cut, or changed, hides no failure."""
    slow, lead = joined([pair("p2p-bandwidth", 0, 1), finding("pcie-link")])

    assert [fault.lead for fault in by_root([slow])[0]] == [slow]
    assert len(by_root([slow, replace(lead, verdict=Verdict.WARN)])[0]) == 2
    assert counted([slow, lead])["fail"] == 1


def test_the_table_names_what_exists_and_has_no_circle():
    table = root_causes()
    checks = {name for step in run.all_steps() for name in (step.name, *step.also)} | {"expectations", "baseline"}
    checks |= {check.name for check in all_checks()}
    listed = [check for kind in table.evidence.values() for check in kind]
    followers = {key for keys in table.explains.values() for key in keys}

    assert {*listed, *table.apart} <= checks | {"uplink"}
    assert len(listed) == len({*listed})
    assert table.explains.keys() <= causes().keys()
    assert followers <= causes().keys() | checks
    passed: set[str] = set()
    todo = [(cause,) for cause in table.explains]
    while todo:
        path = todo.pop()
        assert len(path) == len({*path}), path
        passed.add(path[-1])
        todo += [(*path, key) for key in table.explains.get(path[-1], ())]
    assert passed >= table.explains.keys()


def test_a_topology_points_to_the_same_root_whatever_its_words():
    follower = finding("topology", verdict=Verdict.WARN, seen="x8")
    own = replace(topology(2), findings=(replace(follower, seen="other words"),))
    made = with_findings(report(topology=own), (finding("pcie-link"), follower))

    assert made.topology.findings[0].because_of == "pcie-link"


def test_a_problem_that_two_parts_show_is_one_whatever_its_words():
    again = [finding("pcie-link", seen=words, code="pcie.width-reduced") for words in ("x8", "8 lanes")]

    assert list(_worst_of_each(again)) == again[:1]
    assert len(list(_worst_of_each([again[0], replace(again[1], values={"width": 4})]))) == 2
