"""Findings of a diagnosis as values: a narrow link with other suspects, and a rack."""

from gpucheck.model import Finding, Verdict
from gpucheck.model.finding import Alternative, Step

WIDTH = "pcie-width-reduced"
SHOWS = "lspci -vv of the port above GPU 3 under load: LnkSta names the width and the speed of the link"


def bus_id(gpu):
    return f"0000:{0x10 + gpu:02x}:00.0"


def named_gpus(count):
    return tuple(bus_id(gpu) for gpu in range(count))


def finding(**fields):
    told = {
        "check": "links",
        "verdict": Verdict.FAIL,
        "subject": f"gpu:{bus_id(3)}",
        "gpu_index": 3,
        "seen": 12.4,
        "wanted": 24.9,
        "unit": "GB/s",
        "cause": WIDTH,
        "confidence": "likely",
        "alternatives": (
            Alternative(cause="uplink-downgraded", would_show=SHOWS),
            Alternative(cause="throttled", would_show="nvidia-smi -q -d PERFORMANCE"),
        ),
        "why": "Every copy with GPU 3 is half as fast as its link allows; all other pairs are as expected.",
        "fix": "lspci -vv -s 0000:13:00.0; reseat the card, then: gpucheck bandwidth --devices 3,4",
        "steps": (
            Step(command="lspci -vv -s 0000:13:00.0", changes=False),
            Step(text="reseat the card, then:", changes=True),
            Step(command="gpucheck bandwidth --devices 3,4", changes=False),
        ),
        "evidence": ("14 of 56 copies at 12.1 to 12.7 GB/s",),
    }
    return Finding(**{**told, **fields})


def passed(seen="56 copies, all as the links allow"):
    return Finding(check="links", verdict=Verdict.PASS, subject="host", seen=seen)


def winner():
    """One narrow link; another suspect is the uplink."""
    return finding(), passed("42 copies between the other GPUs, as the links allow")


def rack():
    """72 GPUs, one with half of its NVLinks."""
    return (finding(subject=f"gpu:{bus_id(17)}", gpu_index=17, cause="nvlink-down"),)


ALL = {"winner": (winner, 8), "rack": (rack, 72)}
