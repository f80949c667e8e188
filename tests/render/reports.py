"""Reports as values: a healthy machine, a sick one that was measured, and one whose every string is hostile."""

import msgspec

from gpucheck.model import Finding, Report, Simulation, System, Verdict, worst
from gpucheck.model.bandwidth import HostLink, Measured, MeasuredDevice, MeasuredPair
from gpucheck.model.finding import Step
from tests.imports import nccl
from tests.machines import GEN5_X16
from tests.topology.servers import narrowed, topology

EVIL = "</script><img src=x onerror=document.title='owned'>\x1b[2J\u202egpj\n\"'`{{7*7}}|x]]>"
SYSTEM = System(
    hostname="node07",
    os_id="ubuntu",
    os_version="22.04",
    os_name="Ubuntu 22.04.5 LTS",
    arch="x86_64",
    kernel="5.15.0-179-generic",
)
SIMULATION = Simulation(profile="hgx-h100-x8", faults=("pcie-width:gpu=1,width=8",), stand_ins=("NVML library",))
INTEGRITY = {
    "bytes_verified": 1 << 30,
    "bytes_verified_under_load": 1 << 29,
    "bytes_verified_by_host": 4096,
    "rounds": 64,
    "wrong_words": 0,
}
TRAINING = {
    "type": "result",
    "framework": "torch",
    "strategy": "ddp",
    "placement": "cpu",
    "placement_reason": "no GPU: ranks on the CPU",
    "devices": ["cpu", "cpu"],
    "world_size": 2,
    "steps": 20,
    "loss_first": 2.303,
    "loss_last": 0.412,
    "performance": {"samples_per_s": [900.0, 910.0], "scaling_efficiency": 0.93},
}


STEPS = (
    Step(command="dmesg | grep -e Xid", changes=False),
    Step(text="reseat the board, then:", changes=True),
    Step(command="gpucheck verify --only nvlink", changes=False),
)


def finding(check="nvlink", subject="gpu:0000:01:00.0", verdict=Verdict.FAIL, **fields):
    told = {
        "seen": 17,
        "wanted": 18,
        "unit": "links",
        "cause": "nvlink-down",
        "confidence": "certain",
        "why": "a link is down",
        "fix": "dmesg | grep -e Xid; reseat the board, then: gpucheck verify --only nvlink",
        "evidence": ("nvmlDeviceGetNvLinkState: 17 of 18 ports up",),
        "seconds": 0.25,
    }
    if not {"fix", "steps"} & fields.keys():
        told["steps"] = STEPS
    return Finding(check=check, subject=subject, verdict=verdict, **{**told, **fields})


def passed(check="driver", subject="host"):
    return Finding(check=check, subject=subject, verdict=Verdict.PASS, seen="580.95.05", seconds=0.25)


def skipped(check="mig"):
    return Finding(check=check, subject="host", verdict=Verdict.SKIP, why="no GPU here has MIG", seconds=0.0)


def copies(bus_ids, slow=()):
    """p2p of a report. slow: ordered pairs that reach half of what they should."""
    n = len(bus_ids)
    rate = {(a, b): 190.0 if (a, b) in slow else 380.0 for a in range(n) for b in range(n) if a != b}
    pairs = [
        MeasuredPair(
            src=a,
            dst=b,
            cls="NV18",
            measured=Measured(
                gb_s=gb_s, mad_percent=0.1, slowest_gb_s=gb_s, fastest_gb_s=gb_s, samples=9, size_bytes=1 << 28
            ),
            expected_gb_s=382.5,
            low_gb_s=355.7,
            high_gb_s=450.0,
            ratio=round(gb_s / 382.5, 3),
            basis="18 NVLinks",
            latency_us=2.2,
            both_ways_gb_s=gb_s,
        )
        for (a, b), gb_s in rate.items()
    ]
    matrix = [[rate.get((a, b)) for b in range(n)] for a in range(n)]
    devices = [MeasuredDevice(index=i, name="H100", bus_id=bus_id) for i, bus_id in enumerate(bus_ids)]
    return msgspec.to_builtins(
        {
            "kind": "SIMULATED copies: no GPU was measured",
            "devices": devices,
            "pairs": pairs,
            "matrices": {"p2p_uni_gb_s": matrix, "p2p_bidir_gb_s": matrix},
            "host_device": [HostLink(device=0, h2d_gb_s=50.4, d2h_gb_s=51.0)],
            "integrity": INTEGRITY,
            "method": ["clock: events"],
        }
    )


def report(*findings, simulated=True, **fields):
    verdicts = [found.verdict for found in findings]
    told = {
        "host": "node07",
        "simulated": simulated,
        "simulation": SIMULATION if simulated else None,
        "system": SYSTEM,
        "started": "2026-11-21T16:00:00+00:00",
        "seconds": 4.5,
        "versions": {"gpucheck": "0.1.0", "driver": "580.95.05", "cuda": "13.0", "torch": None},
        "verdict": worst(verdicts),
        "findings": findings,
        "measurements": {},
        "topology": None,
        "counts": {verdict.value: verdicts.count(verdict) for verdict in Verdict},
        "attributes": {"bios": ("1.0",), "uplink": ("0000:15:01.0 gen 5 x16",)},
    }
    return Report(**{**told, **fields})


def sick(gpus=8, **fields):
    """A narrowed uplink, a link that is down, a slow pair, a warning, something unknown; passes and a skip."""
    machine = topology(gpus, uplink={1: narrowed(GEN5_X16, width=8)})
    bus_ids = [gpu.pci_bus_id for gpu in machine.gpus]
    findings = (
        passed(),
        skipped(),
        finding(subject=f"gpu:{bus_ids[1]}"),
        finding("power-limit", f"gpu:{bus_ids[0]}", Verdict.WARN, seen=300, wanted=700, unit="W", cause="power-limit"),
        finding("fabric", "host", Verdict.UNKNOWN, seen=None, wanted=None, cause=None, why="NVML did not respond"),
        finding(
            "p2p-bandwidth", f"pair:{bus_ids[0]}-{bus_ids[1]}", seen=190.0, wanted=355.7, unit="GB/s", cause="throttled"
        ),
        *(passed("bar1", f"gpu:{bus_id}") for bus_id in bus_ids),
    )
    measured = {"p2p": copies(bus_ids, slow=((0, 1), (1, 0))), "smoke-ddp": TRAINING}
    return report(*findings, topology=machine, measurements=measured, **fields)


def healthy():
    """Switches between all GPUs, nothing wrong, nothing measured."""
    from gpucheck import imports

    return report(passed(), topology=imports.read(nccl.hgx()), simulated=False)


def hostile():
    """Every string that a host can choose is EVIL; the names of checks and causes are ours."""
    base = sick()
    gpus = tuple(msgspec.structs.replace(gpu, name=EVIL, uuid=EVIL) for gpu in base.topology.gpus)
    evil = finding("x", EVIL, seen=EVIL, wanted=EVIL, why=EVIL, fix=EVIL, evidence=(EVIL,))
    copied = msgspec.convert(base.measurements["p2p"], dict)
    copied |= {"kind": EVIL, "method": [EVIL], "notes": [EVIL]}
    copied["devices"] = [{**device, "name": EVIL, "bus_id": EVIL} for device in copied["devices"]]
    copied["pairs"] = [{**pair, "class": EVIL, "basis": EVIL} for pair in copied["pairs"]]
    trained = TRAINING | {"placement_reason": EVIL, "devices": [EVIL], "framework": EVIL, "variant": EVIL}
    return report(
        evil,
        finding("y", EVIL, Verdict.UNKNOWN, why=EVIL, seen=None),
        msgspec.structs.replace(skipped(), why=EVIL),
        msgspec.structs.replace(passed("z", EVIL), seen=EVIL),
        host=EVIL,
        simulation=Simulation(profile=EVIL, faults=(EVIL,), stand_ins=(EVIL,)),
        system=msgspec.structs.replace(SYSTEM, os_name=EVIL, kernel=EVIL, virtual=EVIL, hostname=EVIL),
        versions={"gpucheck": EVIL, "driver": EVIL, EVIL: EVIL},
        topology=msgspec.structs.replace(base.topology, gpus=gpus),
        measurements={"p2p": copied, "smoke-ddp": trained},
        attributes={EVIL: (EVIL,)},
    )


REPORTS = {"sick": sick(), "healthy": healthy(), "hostile": hostile(), "empty": report(simulated=False)}
