"""Judgements as values: a healthy machine, a narrow link with a runner-up, several causes, a rack, and no numbers."""

import random

from gpucheck.model import Finding, Verdict
from gpucheck.model.diagnosis.ranking import Explanation, Judgement, Predicted
from gpucheck.model.finding import Alternative

WIDTH = "pcie-width-reduced"
SHOWS = "lspci -vv of the port above GPU 3 under load: LnkSta names the width and the speed of the link"
GEN4 = "16 lanes at 16 GT/s, 31.5 GB/s raw x 0.92 payload x 0.86 through a switch"


def bus_id(gpu):
    return f"0000:{0x10 + gpu:02x}:00.0"


def named_gpus(count):
    return tuple(bus_id(gpu) for gpu in range(count))


def predictions(count, wanted, real, quantity="p2p-one-way", seed=7):
    """One Predicted a pair. wanted(a, b): middle and basis of what the explanation says; real(a, b): of the machine."""
    chance = random.Random(seed)
    found = []
    for a in range(count):
        for b in range(count):
            if a == b or (quantity.endswith("both-ways") and a > b):
                continue
            middle, basis = wanted(a, b)
            measured = real(a, b)[0] * chance.gauss(1, 0.012)
            found.append(
                Predicted(
                    quantity=quantity, a=a, b=b, measured=round(measured, 2), low=middle * 0.97, middle=middle,
                    high=middle * 1.03, basis=basis, weight=chance.uniform(-1, 1),
                )
            )  # fmt: skip
    return tuple(found)


def even(a, b):
    return 24.9, GEN4


def narrow(*gpus):
    """The links of these GPUs have half of their lanes."""

    def rate(a, b):
        return (12.4, "8 lanes at 16 GT/s, 15.8 GB/s raw x 0.92 x 0.86") if {a, b} & set(gpus) else even(a, b)

    return rate


def crowded(a, b):
    """The uplink between two groups of four is slow."""
    return even(a, b) if a // 4 == b // 4 else (12.4, "the uplink at 8 GT/s")


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
        "probability": 0.92,
        "alternatives": (
            Alternative(cause="uplink-downgraded", probability=0.06, would_show=SHOWS),
            Alternative(cause="throttled", probability=0.012, would_show="nvidia-smi -q -d PERFORMANCE"),
        ),
        "why": "Every copy with GPU 3 is half as fast as its link allows; all other pairs are as expected.",
        "fix": "lspci -vv -s 0000:13:00.0; reseat the card, then: gpucheck bandwidth --devices 3,4",
        "evidence": ("14 of 56 copies at 12.1 to 12.7 GB/s",),
    }
    return Finding(**{**told, **fields})


def passed(seen="56 copies, all as the links allow"):
    return Finding(check="links", verdict=Verdict.PASS, subject="host", seen=seen)


def explained(causes, probability, words, count, wanted, real, *, readings=(), quantities=("p2p-one-way",)):
    return Explanation(
        causes=causes,
        probability=probability,
        words=words,
        predictions=tuple(p for name in quantities for p in predictions(count, wanted, real, name)),
        readings=readings,
    )


def healthy(count=8):
    no_fault = explained((), 0.97, "every link works as it should", count, even, even)
    narrowed = explained(
        ((WIDTH, f"gpu:{bus_id(0)}"),), 0.004, "GPU 0's link lacks lanes", count, narrow(0), even
    )  # fmt: skip
    return Judgement(findings=(passed(),), ranking=(no_fault, narrowed), gpus=named_gpus(count))


def winner(count=8):
    """One narrow link; the runner-up is the uplink."""
    real = narrow(3)
    both = ("p2p-one-way", "p2p-both-ways")
    first = explained(
        ((WIDTH, f"gpu:{bus_id(3)}"),), 0.92, "the PCIe link of GPU 3 has 8 of 16 lanes", count, real, real,
        readings=("GPU 3: predicted width 8 of 16 under load, read 16 idle: says nothing",), quantities=both,
    )  # fmt: skip
    second = explained(
        (("uplink-downgraded", "link:0000:0c:00.0"),), 0.06, "the uplink of GPU 0-3 trained at Gen3", count, crowded,
        real, quantities=both,
    )  # fmt: skip
    rest = tuple(
        Explanation(causes=((cause, "host"),), probability=p, words=words)
        for cause, p, words in (
            ("acs-redirect", 0.012, "bridges send copies between GPUs up to the CPU"),
            ("throttled", 0.004, "GPU 3 is throttled while it copies"),
        )
    )
    return Judgement(
        findings=(finding(), passed("42 copies between the other GPUs, as the links allow")),
        ranking=(first, second, *rest),
        gpus=named_gpus(count),
        decided="copies between GPU 0-2 and GPU 4-7: 24.3 to 25.5 GB/s; a slow uplink would allow 12.4",
    )


def several():
    """Two causes at once, and latencies on a logarithmic scale."""
    real = narrow(1, 6)

    def slow(a, b):
        return (38.0, "through host memory") if a // 4 != b // 4 else (2.9, "a switch between the GPUs")

    first = Explanation(
        causes=((WIDTH, f"gpu:{bus_id(1)}"), (WIDTH, f"gpu:{bus_id(6)}"), ("iommu-translation", "host")),
        probability=0.71,
        words="GPU 1 and GPU 6 lack lanes, and the IOMMU translates what crosses the CPU",
        predictions=(*predictions(8, real, real), *predictions(8, slow, slow, "p2p-latency")),
        readings=("IOMMU groups: predicted DMA-FQ, read DMA-FQ", "peer access: predicted granted, granted on 56 of 56"),
    )
    second = Explanation(
        causes=((WIDTH, f"gpu:{bus_id(1)}"), ("iommu-translation", "host")),
        probability=0.27,
        words="GPU 1 lacks lanes, and the IOMMU translates what crosses the CPU",
        predictions=(*predictions(8, narrow(1), real), *predictions(8, slow, slow, "p2p-latency")),
    )
    return Judgement(
        findings=(
            finding(subject=f"gpu:{bus_id(1)}", gpu_index=1, probability=0.99),
            finding(subject=f"gpu:{bus_id(6)}", gpu_index=6, probability=0.73),
            finding(subject="host", gpu_index=None, cause="iommu-translation", confidence="certain", probability=1.0,
                    alternatives=(), seen="DMA-FQ", wanted="identity or off", unit=None, why="The IOMMU translates."),
        ),
        ranking=(first, second),
        gpus=named_gpus(8),
    )  # fmt: skip


def rack(count=72):
    """NVLink everywhere, and two GPUs with half of their links."""

    def links(a, b):
        return (
            (410.0, "9 of 18 NVLinks x 50 GB/s x 0.91") if {a, b} & {17, 40} else (820.0, "18 NVLinks x 50 GB/s x 0.91")
        )

    def all_links(a, b):
        return 820.0, "18 NVLinks x 50 GB/s x 0.91"

    down = (("nvlink-down", f"gpu:{bus_id(17)}"), ("nvlink-down", f"gpu:{bus_id(40)}"))
    return Judgement(
        findings=(finding(subject=f"gpu:{bus_id(17)}", gpu_index=17, cause="nvlink-down", probability=0.998),),
        ranking=(
            explained(down, 0.998, "half of the NVLinks of GPU 17 and GPU 40 are down", count, links, links),
            explained((), 0.0001, "every link works as it should", count, all_links, links),
        ),
        gpus=named_gpus(count),
    )


def no_numbers():
    """Only what was read."""
    return Judgement(
        findings=(
            finding(subject="host", gpu_index=None, cause="geforce-p2p-disabled", confidence="certain", seen="CNS",
                    wanted=None, unit=None, probability=0.9999, alternatives=()),
        ),
        ranking=(
            Explanation(
                causes=(("geforce-p2p-disabled", "host"),),
                probability=0.9999,
                words="the driver allows no peer access between GeForce cards",
                readings=("P2P status: predicted CNS on every pair, read CNS on 2 of 2",),
            ),
        ),
        gpus=named_gpus(2),
    )  # fmt: skip


ALL = {"healthy": healthy, "winner": winner, "several": several, "rack": rack, "no-numbers": no_numbers}
