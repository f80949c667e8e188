"""SIMULATED machines with one fault each: the cause is named whatever the size, numbering, noise or gaps."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.diagnose import diagnose, read
from gpucheck.diagnose.rules import all_rules
from gpucheck.knowledge import causes
from gpucheck.model import Finding, Verdict, worst
from tests.diagnose.machines import (
    GEFORCE,
    Shape,
    healthy,
    nvlinked,
    permuted,
    redirected,
    same_generation,
    slow_device,
    slow_uplink,
    without_p2p,
)

pytestmark = pytest.mark.slow

# count, group, sockets, generation
SHAPES = [
    (2, 1, 1, 4), (2, 2, 1, 5), (2, 1, 2, 5), (3, 1, 1, 4), (4, 2, 1, 3), (4, 1, 1, 5), (6, 2, 1, 4),
    (7, 2, 2, 4), (8, 4, 1, 5), (8, 4, 2, 4), (8, 2, 2, 3), (16, 4, 1, 5),
]  # fmt: skip
BOARDS = [
    ("NVIDIA H100 80GB HBM3", 8, 18, 25.0, 0.85, 18),
    ("NVIDIA A100-SXM4-80GB", 8, 12, 25.0, 0.92, 12),
    ("NVIDIA B200", 8, 18, 50.0, 0.83, 18),
    ("NVIDIA A100-SXM4-40GB", 4, 4, 25.0, 0.92, 12),
    ("NVIDIA A100-SXM-64GB", 4, 4, 25.0, 0.92, 12),
    ("NVIDIA GeForce RTX 3090", 2, 4, 14.0625, 0.92, 4),
]
QUIET = {None, "expected-limit", "cross-socket", "shared-uplink", "narrow-by-design"}


def judged(seen: dict[str, Any]) -> tuple[Finding, ...]:
    return diagnose(read(json.dumps(seen)))


def wrong(findings: tuple[Finding, ...]) -> set[str | None]:
    """Causes of what is worse than a pass."""
    return {finding.cause for finding in findings if finding.verdict is not Verdict.PASS}


def shape(at: tuple[int, int, int, int], noise: float = 0.0, seed: int = 1) -> Shape:
    return Shape(*at, noise, seed)


def told(seen: dict[str, Any], **measured: Any) -> dict[str, Any]:
    seen["measured"].update(measured)
    return seen


def with_host(seen: dict[str, Any], **host: Any) -> dict[str, Any]:
    seen["host"].update(host)
    return seen


def far_from_host(seen: dict[str, Any]) -> dict[str, Any]:
    """All host copies from node 0, those of the other node's GPUs slow."""
    for row in seen["measured"]["host_device"]:
        if row["numa_node"] == 1:
            row.update(numa_node=0, h2d_gb_s=row["h2d_gb_s"] * 0.65, d2h_gb_s=row["d2h_gb_s"] * 0.65)
    return seen


def on_chipset(seen: dict[str, Any]) -> dict[str, Any]:
    seen["gpus"][1]["path"] = [{"bus_id": "0000:00:1c.0", "kind": "chipset"}]
    for i, row in enumerate(seen["measured"]["p2p_uni_gb_s"]):
        seen["measured"]["p2p_uni_gb_s"][i] = [v and round(v / 2.2, 2) if 1 in (i, j) else v for j, v in enumerate(row)]
    return seen


def no_nvlink_in_use(access: Any) -> dict[str, Any]:
    seen = nvlinked(8, "NVIDIA H100 80GB HBM3", 18, 25.0, 0.85)
    s = Shape(8, 1, 2, 5)
    seen["p2p_access"] = access
    return told(seen, p2p_uni_gb_s=s.rates(lambda i, j: 36.5), p2p_bidir_gb_s=s.rates(lambda i, j: 41.0))


def one_link_less() -> dict[str, Any]:
    seen = nvlinked(8, "NVIDIA H200", 18, 25.0, 0.85)
    seen["gpus"][3]["nvlinks"]["active"] = 16
    return seen


# Name -> the machine, and the cause that must be named.
FAULTS: dict[str, tuple[Callable[[], dict[str, Any]], set[str]]] = {
    "width told": (lambda: slow_device(shape((4, 2, 1, 4))), {"pcie-width-reduced"}),
    "generation told": (lambda: slow_device(shape((6, 2, 1, 4)), "gen"), {"pcie-link-downgraded"}),
    "device untold": (lambda: slow_device(shape((8, 4, 1, 5)), "gen", told=False), {"pcie-link-downgraded"}),
    "chipset": (lambda: on_chipset(healthy(shape((3, 1, 1, 4)))), {"gpu-behind-chipset"}),
    "uplink told": (lambda: slow_uplink(shape((8, 4, 1, 4))), {"uplink-downgraded"}),
    "uplink untold": (lambda: slow_uplink(shape((6, 2, 1, 5)), told=False), {"uplink-downgraded"}),
    "acs": (lambda: redirected(shape((4, 2, 1, 4)), acs_redirect=True, iommu="off"), {"acs-redirect"}),
    "iommu": (lambda: redirected(shape((8, 4, 1, 5)), acs_redirect=False, iommu="translating"), {"iommu-translation"}),
    "acs or iommu": (lambda: redirected(shape((4, 4, 1, 4))), {"acs-redirect", "iommu-translation"}),
    "all generations": (lambda: same_generation(shape((8, 4, 1, 4))), {"pcie-link-downgraded"}),
    "all generations, idle": (lambda: same_generation(shape((4, 1, 1, 5)), "idle"), {"pcie-link-downgraded"}),
    "vm": (lambda: with_host(without_p2p(shape((4, 1, 1, 4))), virtual=True), {"vm-no-p2p"}),
    "numa": (lambda: far_from_host(healthy(shape((4, 1, 2, 5)))), {"wrong-numa-placement"}),
    "links counted": (one_link_less, {"nvlink-down"}),
    "fabric refused": (lambda: no_nvlink_in_use("none"), {"fabric-manager-down"}),
    "fabric slow": (lambda: no_nvlink_in_use("all"), {"fabric-manager-down"}),
    "zeros": (
        lambda: with_host(
            told(healthy(shape((4, 2, 1, 4))), integrity_bad_pairs=[[0, 1]], damage="zeros"), iommu="translating"
        ),
        {"iommu-translation"},
    ),
    "granted and wrong": (
        lambda: told(healthy(shape((4, 2, 1, 4))), integrity_bad_pairs=[[0, 1]], damage="stale"), {"false-p2p-grant"},
    ),
    "bits": (
        lambda: told(healthy(shape((4, 2, 1, 4))), integrity_bad_pairs=[[2, 3]], damage="bit-flip"),
        {"data-corruption"},
    ),
    "hang": (
        lambda: with_host(
            told(healthy(shape((4, 2, 1, 3))), hang={"op": "all_reduce", "gpus": [0, 1], "with_p2p_off": False}),
            acs_redirect=True,
        ),
        {"acs-redirect"},
    ),
    "hang anyway": (
        lambda: told(healthy(shape((4, 2, 1, 3))), hang={"op": "copy", "gpus": [0, 1], "with_p2p_off": True}),
        {"wedged-driver"},
    ),
    "writes collapse": (
        lambda: told(healthy(shape((8, 4, 1, 5))), flows=[{"pairs": [[0, 4], [1, 5], [2, 6]], "total_gb_s": 9}]),
        {"switch-write-collapse"},
    ),
    "policy": (
        lambda: told(
            healthy(shape((4, 1, 1, 5))),
            collectives=[{"op": "all_reduce", "bytes": 1 << 28, "busbw_gb_s": 20, "transport": "SHM/direct"}],
        ),
        {"nccl-policy"},
    ),
    "environment": (
        lambda: {**healthy(shape((4, 2, 1, 4))), "environment": {"NCCL_P2P_DISABLE": "1"}}, {"leftover-environment"},
    ),
    "latent iommu": (lambda: with_host(healthy(shape((4, 2, 1, 4))), iommu="translating"), {"iommu-translation"}),
}  # fmt: skip


@pytest.mark.parametrize("noise", [0.0, 0.03])
@pytest.mark.parametrize("at", SHAPES, ids=str)
def test_a_healthy_pcie_machine_passes(at, noise):
    """No false alarm: every shape, with and without noise."""
    for seed in range(3):
        findings = judged(healthy(shape(at, noise, seed)))

        assert {finding.verdict for finding in findings} == {Verdict.PASS}
        assert {finding.cause for finding in findings} <= QUIET


@pytest.mark.parametrize(("model", "count", "links", "rate", "part", "per_gpu"), BOARDS, ids=lambda v: str(v)[:22])
def test_a_healthy_nvlink_machine_passes(model, count, links, rate, part, per_gpu):
    for seed in range(3):
        findings = judged(nvlinked(count, model, links, rate, part, per_gpu=per_gpu, noise=0.03, seed=seed))

        assert {finding.verdict for finding in findings} == {Verdict.PASS}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_is_named(name):
    machine, cause = FAULTS[name]
    findings = judged(machine())

    assert wrong(findings) == cause, [(f.check, f.cause, f.why) for f in findings]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_the_numbering_of_gpus_changes_nothing(name):
    machine, cause = FAULTS[name]
    seen = machine()
    for seed in range(4):
        order = list(range(len(seen["gpus"])))
        random.Random(seed).shuffle(order)
        findings = judged(permuted(seen, order))

        assert wrong(findings) == cause
        assert worst(f.verdict for f in findings) is worst(f.verdict for f in judged(seen))


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_missing_key_makes_no_other_cause_likely(name):
    """One key taken away at a time: less may be known, but nothing wrong may be told for sure."""
    machine, cause = FAULTS[name]
    for path, seen in without_each_key(machine()):
        sure = {f.cause for f in judged(seen) if f.verdict is not Verdict.PASS and f.confidence != "possible"}

        assert sure - {None} <= cause, path


def without_each_key(seen: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in (None, "host", "measured"):
        for key in list(seen if block is None else seen[block]):
            less = copy.deepcopy(seen)
            del (less if block is None else less[block])[key]
            found.append((f"{block}.{key}", less))
    for key in ("model", "bus_id", "numa_node", "pcie", "bar1_mib"):
        less = copy.deepcopy(seen)
        for gpu in less["gpus"]:
            gpu.pop(key, None)
        found.append((f"gpus.{key}", less))
    for key in ("gen", "width", "max_gen", "max_width", "read"):
        less = copy.deepcopy(seen)
        for gpu in less["gpus"]:
            gpu.get("pcie", {}).pop(key, None)
        found.append((f"gpus.pcie.{key}", less))
    return found


@pytest.mark.parametrize("at", SHAPES, ids=str)
def test_geforce_without_p2p_is_no_fault(at):
    findings = judged(without_p2p(shape(at, 0.03), GEFORCE[at[3]]))

    assert {finding.verdict for finding in findings} == {Verdict.PASS}
    assert "geforce-p2p-disabled" in {finding.cause for finding in findings}


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


@pytest.mark.parametrize("at", SHAPES, ids=str)
def test_staged_copies_both_ways_at_once_share_what_one_way_has(at):
    """Only sums were measured, as in nccl#1127: no link is slow."""
    s = shape(at, 0.03)
    seen = without_p2p(s, GEFORCE[at[3]])
    raw = {3: 15.75, 4: 31.5, 5: 63.0}[at[3]]
    both = s.rates(lambda i, j: (0.39 if s.pairs(i, j) else 0.54) * raw)
    seen["measured"] = {"p2p_bidir_gb_s": both}

    assert {f.verdict for f in judged(seen)} == {Verdict.PASS}


@pytest.mark.parametrize("at", [at for at in SHAPES if at[0] > 2], ids=str)
@pytest.mark.parametrize("lost", ["width", "gen"])
def test_the_slow_card_is_the_one_that_is_named(at, lost):
    for told_ in (True, False):
        findings = judged(slow_device(shape(at, 0.03), lost, told=told_))

        assert {f.subject for f in findings if f.verdict is not Verdict.PASS} == {"gpu:0000:11:00.0"}, [
            (f.check, f.cause, f.subject) for f in findings
        ]


@settings(max_examples=60, deadline=None)
@given(at=st.sampled_from(SHAPES), seed=st.integers(0, 10**6), loss=st.floats(0.3, 0.9))
def test_a_pair_that_lost_a_third_is_never_missed(at, seed, loss):
    """Whatever else: one direct pair far below its expectation is no pass."""
    s = shape(at, 0.03, seed)
    seen = healthy(s)
    del seen["gpus"][0]["pcie"]["read"]
    raw = {3: 15.75, 4: 31.5, 5: 63.0}[at[3]]
    low = 0.55 if at[2] == 1 else 0.24
    for i, j in ((0, 1), (1, 0)):
        seen["measured"]["p2p_uni_gb_s"][i][j] = round(raw * min(low, 0.86 * (1 - loss)), 2)

    assert worst(f.verdict for f in judged(seen)) in (Verdict.FAIL, Verdict.WARN)


@pytest.mark.parametrize("read_", ["idle", None])
def test_an_idle_link_is_no_fault(read_):
    """Generation 1 while the copies show generation 5: the reading was taken idle."""
    seen = healthy(shape((4, 2, 1, 5)))
    for gpu in seen["gpus"]:
        gpu["pcie"].update(gen=1, read=read_)

    assert {f.verdict for f in judged(seen)} == {Verdict.PASS}


def test_half_the_lanes_on_every_card_is_how_some_boards_are_made():
    seen = healthy(shape((2, 1, 1, 3)))
    for gpu in seen["gpus"]:
        gpu["pcie"].update(width=8, gen=4, max_gen=4)
        gpu["model"] = "NVIDIA A10"
    findings = judged(seen)

    assert {f.verdict for f in findings} == {Verdict.PASS}
    assert "narrow-by-design" in {f.cause for f in findings}


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
