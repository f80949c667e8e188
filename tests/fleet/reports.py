"""Host reports for the tests of the fleet: one real run on a fake host, its numbers changed."""

import functools

import msgspec

from gpucheck import fleet
from gpucheck.model import Expected, Finding, Pair, Simulation, Topology, TopologyGpu, Verdict, counted, worst
from tests.run.test_run import HOST, quick

SIMULATED = Simulation(profile="hgx-h100-x8", faults=(), stand_ins=("NVML library",))
STARTED = "2026-11-21T12:00:00+00:00"
GOOD = Finding(check="inventory", verdict=Verdict.PASS, subject="host", seen="4 GPUs")
EXPECTED = Expected(unidirectional_gb_s=380.0, low_gb_s=350.0, high_gb_s=450.0, basis="18 NVLinks")


@functools.cache
def template():
    return quick(HOST)


def topology(gpus=4, name="NVIDIA H100 80GB HBM3", cls="NV18"):
    pairs = tuple(Pair(a=a, b=b, cls=cls, expected=EXPECTED) for a in range(gpus) for b in range(a + 1, gpus))
    nodes = tuple(TopologyGpu(index=i, name=name, pci_bus_id=f"0000:{i:02x}:00.0") for i in range(gpus))
    return Topology(simulated=True, source="nvml", gpus=nodes, matrix=(), pairs=pairs)


def copies(shape, rate, pairs):
    """The step p2p of a report. pairs: rates that differ, both directions."""
    rates = {"mad_percent": 0.1, "slowest_gb_s": rate, "fastest_gb_s": rate, "samples": 15, "size_bytes": 1 << 28}
    ends = [(p, *ends) for p in shape.pairs for ends in ((p.a, p.b), (p.b, p.a))]
    return {
        "engine": "simulated",
        "devices": [{"index": gpu.index, "name": gpu.name, "bus_id": gpu.pci_bus_id} for gpu in shape.gpus],
        "pairs": [
            {"src": a, "dst": b, "class": p.cls, "low_gb_s": EXPECTED.low_gb_s,
             "measured": {"gb_s": pairs.get(f"{p.a}-{p.b}", rate), **rates}}
            for p, a, b in ends
        ],
    }  # fmt: skip


def report(host, rate=380.0, *, pairs=None, **changes):
    """A passing host whose pairs all reach `rate`; pairs: {"0-1": rate} for those that differ."""
    shape = topology()
    system = msgspec.structs.replace(template().system, hostname=host)
    fields = {
        "host": host,
        "system": system,
        "started": STARTED,
        "topology": shape,
        "findings": (GOOD,),
        "measurements": {"p2p": copies(shape, rate, pairs or {})},
        "versions": {"driver": "580.95.05"},
        "simulation": SIMULATED,
    }
    fields |= changes
    fields.setdefault("verdict", worst(finding.verdict for finding in fields["findings"]))
    fields.setdefault("counts", counted(fields["findings"]))
    if changes.get("simulated") is False:
        fields["simulation"] = None
        if fields["topology"] is not None:
            fields["topology"] = msgspec.structs.replace(fields["topology"], simulated=False)
    return msgspec.structs.replace(template(), **fields)


def bad(check="nvlink", cause="nvlink-down", verdict=Verdict.FAIL, subject="host", seen="17 links"):
    return Finding(
        check=check, verdict=verdict, subject=subject, seen=seen, cause=cause, why="a link is down", fix="reset"
    )


def encoded(*reports) -> list[bytes]:
    return [msgspec.json.encode(r) for r in reports]


def write(folder, *reports):
    for each in reports:
        (folder / f"{each.host}.json").write_bytes(msgspec.json.encode(each))
    return folder


def rows(*reports):
    return [row for each in reports for row in fleet.rows_of(msgspec.json.encode(each), f"{each.host}.json")]


def metrics(report):
    """The metrics of one report, as the fleet reads it."""
    return rows(report)[0].metrics


def merged(*reports, **options):
    return fleet.merge(rows(*reports), **options)


def steady(count=12, first=1):
    """Healthy hosts that differ as healthy hosts do."""
    return [report(f"node{i:02d}", 380.0 + (i % 5 - 2) * 0.8) for i in range(first, first + count)]
