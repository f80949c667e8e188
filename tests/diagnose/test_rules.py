"""What a rule may blame and what not, machine by machine; and that every rule and cause is documented."""

import pytest

from gpucheck.diagnose.rules import all_rules
from gpucheck.knowledge import causes
from gpucheck.model import Verdict
from tests.diagnose.faulty import FAULTS, SHAPES, judged, shape, wrong
from tests.diagnose.machines import healthy, nvlinked, redirected

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("at", [at for at in SHAPES if at[2] == 1], ids=str)
@pytest.mark.parametrize(("latency", "cause"), [(3.0, None), (14.0, "false-p2p-grant")])
def test_good_one_way_and_half_of_it_both_ways_is_told(at, latency, cause):
    s = shape(at, 0.03)
    seen = healthy(s)
    one_way = seen["measured"]["p2p_uni_gb_s"]
    seen["measured"].update(p2p_bidir_gb_s=one_way, p2p_latency_us=s.rates(lambda i, j: latency))

    loud = [f for f in judged(seen) if f.verdict not in (Verdict.PASS, Verdict.SKIP)]

    assert {(f.check, f.cause) for f in loud} == {("both-ways", cause)}


@pytest.mark.parametrize(("told_", "cause"), [(True, None), (False, "nvlink-down")])
def test_slow_nvlinks_that_are_all_up_are_not_called_down(told_, cause):
    seen = nvlinked(8, "NVIDIA H100 80GB HBM3", 18, 25.0, 0.60)
    for gpu in seen["gpus"] if not told_ else ():
        del gpu["nvlinks"]

    loud = [f for f in judged(seen) if f.verdict is not Verdict.PASS]

    assert [(f.verdict, f.cause) for f in loud] == [(Verdict.FAIL, cause)]


def test_one_slow_direction_of_nvlinks_repeats_packets_and_is_not_down():
    """A link that is down is down both ways."""
    seen = nvlinked(4, "NVIDIA A100-SXM4-40GB", 4, 25.0, 0.92, per_gpu=12)
    seen["measured"]["p2p_uni_gb_s"][1][2] *= 0.6

    assert "nvlink-errors" in wrong(judged(seen))
    assert "nvlink-down" not in wrong(judged(seen))


@pytest.mark.parametrize(
    ("control", "cause"),
    [(0x01, set()), (0x1D, {"acs-redirect"}), (0x08, {"acs-redirect"}), (0x20, {"acs-redirect"})],
)
def test_only_redirecting_bits_count(control, cause):
    """Source validation (0x01) redirects nothing."""
    seen = redirected(shape((4, 4, 1, 4)), iommu="off")
    del seen["host"]["acs_redirect"]
    seen["host"]["acs"] = [{"bus_id": "0000:01:00.0", "control": control}]
    found = wrong(judged(seen))

    assert found - {"expected-limit"} == cause


def test_a_redirecting_bridge_that_is_on_no_path_does_not_count():
    seen = redirected(shape((2, 2, 1, 4)), iommu="off")
    switch = {"bus_id": "0000:01:00.0", "kind": "switch"}
    for i, gpu in enumerate(seen["gpus"]):
        gpu["path"] = [switch, {"bus_id": f"0000:02:0{i}.0", "kind": "switch"}]
    seen["host"]["acs_redirect"] = ["0000:80:00.0"]

    assert "acs-redirect" not in wrong(judged(seen))
    seen["host"]["acs_redirect"] = ["0000:02:01.0"]
    assert wrong(judged(seen)) == {"acs-redirect"}


def test_an_empty_machine_is_unknown():
    findings = judged({"gpus": {"count": 4, "model": "NVIDIA A10"}})

    assert {f.verdict for f in findings} == {Verdict.UNKNOWN}


def test_every_cause_is_in_the_knowledge_and_every_finding_says_what_to_do():
    for machine, _ in FAULTS.values():
        for finding in judged(machine()):
            assert finding.cause is None or finding.cause in causes()
            assert finding.why
            assert finding.fix


def test_rules_are_told_in_order_and_documented():
    rules = all_rules()

    assert [rule.order for rule in rules] == sorted({rule.order for rule in rules})
    assert all(rule.looks_at and rule.formula and rule.sources for rule in rules)
