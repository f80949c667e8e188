"""Numbers of network cards: the least of port, PCIe path and GPU link is the limit; what shows names slow cards."""

import json

import pytest

from gpucheck.checks.network.transfers import nccl
from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.foreign.documents import DocumentProblem
from gpucheck.model import Verdict
from gpucheck.model.diagnosis.observations import ObservedNic
from gpucheck.model.facts import Facts
from gpucheck.model.network import NicMeasurement, Transferred

GEN5 = {"gen": 5, "width": 16, "max_gen": 5, "max_width": 16}


def cards(count=4, **changes):
    card = {"rate_gbit_s": 400, "link_layer": "infiniband", "mtu": 4096, "product": "MT4129", "path": [GEN5]}
    return [{"name": f"mlx5_{n}", "bus_id": f"0000:{n}4:00.0", **card, **changes} for n in range(count)]


def judged(nics, rows, **more):
    """rows: (client, server, GB/s, further fields)."""
    results = [{"nics": [a, b], "value": value, **fields} for a, b, value, fields in rows]
    seen = {"nics": nics, "measured": {"nic_bw_gb_s": results}, **more}
    return [
        (one.verdict, one.subject, one.code, one.cause)
        for one in diagnose(read(json.dumps(seen)))
        if one.check == "nic-bandwidth"
    ]


def alone(*values):
    return [(n, n, value, {}) for n, value in enumerate(values)]


def changed(nics, n, **changes):
    return [{**one, **changes} if m == n else one for m, one in enumerate(nics)]


ONE = "nic:0000:14:00.0"
NARROW = [{"gen": 5, "width": 8, "max_gen": 5, "max_width": 16, "bus_id": "0000:10:01.0"}]
OLD = [{"gen": 4, "width": 16, "max_gen": 5, "max_width": 16, "bus_id": "0000:10:01.0"}]
TOGETHER = [(n, n, 28.0, {"together": True}) for n in (0, 1)]
BY_DESIGN = [{"gen": 4, "width": 16, "max_gen": 4, "max_width": 16}]


@pytest.mark.parametrize(
    ("nics", "rows", "expected"),
    [
        (cards(), alone(48.5, 48.5, 48.5, 48.5), [(Verdict.PASS, "host", None, None)]),
        (cards(), alone(48.5, 24.0, 48.5, 48.5), [(Verdict.FAIL, ONE, "nic.slow-card", "nic-slow")]),
        (cards(), alone(48.5, 42.0, 48.5, 48.5), [(Verdict.WARN, ONE, "nic.slow-card", "nic-slow")]),
        (cards(), alone(24.0, 24.0, 24.0, 24.0), [(Verdict.WARN, "host", "nic.slow-all", "nic-slow")]),
        # A slot that can do no more is no fault, and a whole site may have slower switches.
        (cards(path=BY_DESIGN), alone(28.0, 28.0, 28.0, 28.0), [(Verdict.PASS, "host", None, None)]),
        (cards(rate_gbit_s=200), alone(24.0, 24.0, 24.0, 24.0), [(Verdict.PASS, "host", None, None)]),
        (changed(cards(), 1, path=NARROW), alone(48.5, 28.0, 48.5, 48.5),
         [(Verdict.FAIL, ONE, "nic.slow-path", "pcie-width-reduced")]),
        (changed(cards(), 1, path=OLD), alone(48.5, 28.0, 48.5, 48.5),
         [(Verdict.FAIL, ONE, "nic.slow-path", "pcie-link-downgraded")]),
        # As low as its link, and lower: what was read does not explain it.
        (changed(cards(), 1, path=NARROW), alone(48.5, 9.0, 48.5, 48.5),
         [(Verdict.FAIL, ONE, "nic.slow-card", "nic-slow")]),
        (changed(cards(), 1, rate_gbit_s=200), alone(48.5, 24.0, 48.5, 48.5),
         [(Verdict.FAIL, ONE, "nic.slow-port", "nic-rate")]),
        # Of two either may be the odd one; another product is no peer.
        (changed(cards(2), 1, rate_gbit_s=200), alone(48.5, 24.0), [(Verdict.PASS, "host", None, None)]),
        (changed(cards(), 1, rate_gbit_s=200, product="BF3"), alone(48.5, 24.0, 48.5, 48.5),
         [(Verdict.PASS, "host", None, None)]),
        ([*cards(1)], [(0, 0, 48.5, {}), (0, 0, 20.0, {"gpu": {**GEN5, "bus_id": "0000:03:00.0"}})],
         [(Verdict.FAIL, "nic:0000:04:00.0", "nic.slow-to-gpu", "acs-redirect")]),
        (cards(3), [*alone(48.5, 48.5, 48.5), (0, 1, 48.0, {}), (1, 2, 20.0, {}), (0, 2, 48.0, {})],
         [(Verdict.WARN, ONE, "nic.slow-pair", "nic-congestion")]),
        (cards(3), [(0, 1, 20.0, {}), (1, 2, 20.0, {}), (0, 2, 48.0, {})],
         [(Verdict.FAIL, ONE, "nic.slow-card", "nic-slow")]),
        # Two behind one link reach half each: that is the limit.
        (cards(2, path=[{**GEN5, "bus_id": "r"}]), [*alone(48.5, 48.5), *TOGETHER],
         [(Verdict.PASS, "host", None, None)]),
        (cards(2), [*alone(48.5, 48.5), *TOGETHER],
         [(Verdict.WARN, "host", "nic.slow-together", None)]),
        (cards(1), alone(388.0), [(Verdict.UNKNOWN, "host", "nic.above-limit", None)]),
        ([{"name": "rxe0"}], alone(0.01), [(Verdict.SKIP, "host", "nic.rate-not-known", None)]),
        (changed(cards(2), 1, rate_gbit_s=None), alone(48.5, 4.0),
         [(Verdict.PASS, "host", None, None), (Verdict.SKIP, "host", "nic.rate-not-known", None)]),
    ],
)  # fmt: skip
def test_a_number_is_held_to_the_least_of_port_path_and_gpu(nics, rows, expected):
    assert judged(nics, rows) == expected


def test_a_guest_shows_no_pcie_links_and_cannot_fail():
    host = {"virtual": True}

    assert judged(cards(path=BY_DESIGN), alone(24.0, 48.5, 48.5, 48.5), host=host) == [
        (Verdict.WARN, "nic:0000:04:00.0", "nic.slow-card", "nic-slow")
    ]


@pytest.mark.parametrize(("us", "verdict"), [(0.9, [Verdict.PASS]), (14.0, [Verdict.WARN]), (0.0, [])])
def test_latency(us, verdict):
    """A tool prints 0.00 for what it did not measure."""
    seen = {"nics": cards(1), "measured": {"nic_latency_us": [{"nics": [0, 0], "value": us}]}}

    assert [one.verdict for one in diagnose(read(json.dumps(seen))) if one.check == "nic-latency"] == verdict


def test_a_result_of_a_card_that_is_not_listed_is_refused():
    with pytest.raises(DocumentProblem, match="card 1 is measured, but nics has 1"):
        judged(cards(1), [(0, 1, 40.0, {})])


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        ((20.0, 20.0, 20.0, 20.0), [None]),
        ((20.0, 20.0, 20.0, 8.0), ["nic.nccl-slow-card"]),
        ((2.0, 2.0, 2.0, 2.0), ["nic.nccl-low"] * 4),
        ((2.0,), ["nic.nccl-low"]),
    ],
)
def test_cards_that_are_all_slow_with_nccl_do_not_vouch_for_each_other(values, codes):
    nics = [ObservedNic(name=f"mlx5_{n}", product="MT4129") for n in range(len(values))]
    rows = tuple(
        NicMeasurement(client=nic.name, server=nic.name, operation="all_reduce", value=value, expected_gb_s=24.0)
        for nic, value in zip(nics, values, strict=True)
    )

    assert [one.code for one in nccl(Facts(transferred=Transferred(results=rows, nics=tuple(nics))))] == codes
