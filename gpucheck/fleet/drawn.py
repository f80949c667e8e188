"""Numbers of simulated hosts: bandwidth, collectives, training and compute, drawn around those of the machine.

Faults of SLOW change these numbers only: the host reports no problem.
"""

import hashlib
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpucheck.model import Pair, Report

SLOW = {
    "slow-host": {"loss": 10.0},
    "slow-gpu": {"gpu": 0.0, "loss": 10.0},
    "slow-pair": {"pair": 0.0, "loss": 10.0},
    "slow-training": {"loss": 10.0},
    "wrong-losses": {},
}
OF_PAIRS = ("slow-host", "slow-gpu", "slow-pair")
COMPONENTS = ("drawn bandwidths", "drawn collectives and trainings", "drawn compute rates")
# Two healthy hosts, or GPUs, of one kind differ by about this much.
HOST_SPREAD, GPU_SPREAD = 0.005, 0.003
# What two directions at once reach of twice one direction.
BOTH_WAYS = 0.97
# Standard error of a median over that of a mean, for normal noise.
MEDIAN_ERROR = 1.2533
# Part of the bandwidth of its slowest link that a ring of large messages reaches, and of small ones.
RING = {1 << 30: 0.9, 1 << 20: 0.1}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
STEPS_PER_S, STEPS, BATCH = 150.0, 40, 64
VERSIONS = {"torch": "simulated"}
READINGS = 20  # of the readings under load every so many are kept: reports of a large fleet take less space


class Noise(NamedTuple):
    """relative: of one sample. samples: a reported number is the median of so many."""

    relative: float = 0.05
    samples: int = 15

    @property
    def of_a_number(self) -> float:
        """Relative error of a reported number."""
        return self.relative * (MEDIAN_ERROR / self.samples**0.5 if self.samples > 1 else 1.0)


class Drawing(NamedTuple):
    """fault: its name, empty for a healthy host, with its parameters. error: of one number."""

    fault: str
    parameters: Mapping[str, str]
    error: float
    rng: random.Random

    @property
    def loss(self) -> float:
        """Return the part of a number that the fault takes."""
        return float(self.parameters.get("loss", "10")) / 100

    def around(self, value: float) -> float:
        """Return the value with noise."""
        return max(0.0, value * self.rng.gauss(1.0, self.error))


def measurements(template: Report, drawing: Drawing) -> dict[str, Any]:
    """Return what the host measured. What the machine's own run did not measure follows from its topology."""
    spread = drawing.rng.gauss(1.0, HOST_SPREAD)
    pairs = [pair for pair in (template.topology.pairs if template.topology else ()) if pair.expected]
    found = dict(template.measurements)
    if pairs:
        found["p2p-bandwidth"] = {"pairs": _bandwidth(pairs, spread, drawing)}
        found["collectives"] = _collectives(pairs, spread, drawing)
        found["smoke-ddp"] = _training(template, drawing)
    if isinstance(found.get("compute"), dict):
        found["compute"] = _compute(found["compute"], drawing)
    return found


def _bandwidth(pairs: list[Pair], spread: float, drawing: Drawing) -> list[dict[str, Any]]:
    """Both directions of every pair: one direction at a time, and both at once."""
    drawn = []
    for pair in pairs:
        rate = _rate(pair, drawing) * spread
        for a, b in ((pair.a, pair.b), (pair.b, pair.a)):
            one, both = drawing.around(rate), drawing.around(2 * BOTH_WAYS * rate)
            rates = {"unidirectional_gb_s": round(one, 3), "bidirectional_gb_s": round(both, 3)}
            drawn.append({"a": a, "b": b, "class": pair.cls, **rates})
    return drawn


def _rate(pair: Pair, drawing: Drawing) -> float:
    """Return the bandwidth that the fault leaves a pair."""
    full = pair.expected.unidirectional_gb_s if pair.expected else 0.0
    parameters = drawing.parameters
    hit = {
        "slow-host": True,
        "slow-gpu": int(parameters.get("gpu", "0")) in (pair.a, pair.b),
        "slow-pair": parameters.get("pair", "0-1") == f"{pair.a}-{pair.b}",
    }
    return full * (1 - drawing.loss) if drawing.fault in OF_PAIRS and hit[drawing.fault] else full


def _collectives(pairs: list[Pair], spread: float, drawing: Drawing) -> dict[str, Any]:
    """A ring is as fast as the slowest pair of neighbors in it."""
    ranks = 1 + max(max(pair.a, pair.b) for pair in pairs)
    ring = [pair for pair in pairs if abs(pair.a - pair.b) in (1, ranks - 1)]
    slowest = min(_rate(pair, drawing) for pair in ring or pairs) * spread
    results = [
        {
            "operation": operation,
            "size_bytes": size,
            "variant": "as is",
            "busbw_gb_s": round(drawing.around(slowest * part), 3),
        }
        for operation in OPERATIONS
        for size, part in RING.items()
    ]
    return {"simulated": True, "backend": "nccl", "ranks": ranks, "results": results}


def _training(template: Report, drawing: Drawing) -> dict[str, Any]:
    """The losses of equal GPUs, versions and settings are equal."""
    names = [gpu.name or "GPU" for gpu in template.topology.gpus] if template.topology else []
    rate = STEPS_PER_S * drawing.rng.gauss(1.0, HOST_SPREAD)
    rate = drawing.around(rate * (1 - drawing.loss) if drawing.fault == "slow-training" else rate)
    wrong = f"{drawing.rng.random()}" if drawing.fault == "wrong-losses" else ""
    digest = hashlib.sha256(f"{names} {VERSIONS} {wrong}".encode()).hexdigest()
    return {
        "type": "result",
        "framework": "torch",
        "strategy": "ddp",
        "variant": "",
        "model": "mlp",
        "precision": "fp32",
        "backend": "nccl",
        "placement": "gpus",
        "device_names": names,
        "world_size": len(names),
        "steps": STEPS,
        "batch_per_rank": BATCH,
        "loss_digest": digest,
        "performance": {"steps_per_s": round(rate, 2)},
        "versions": VERSIONS,
    }


def _compute(step: Mapping[str, Any], drawing: Drawing) -> dict[str, Any]:
    """The template's rates with the spread of GPUs and of numbers; its digests and errors as they are."""
    return {**step, "gpus": [_gpu(gpu, drawing) for gpu in step.get("gpus", ())]}


def _gpu(gpu: Mapping[str, Any], drawing: Drawing) -> dict[str, Any]:
    spread = drawing.rng.gauss(1.0, GPU_SPREAD)

    def drawn(rates: Mapping[str, Any], unit: str) -> dict[str, Any]:
        return {
            key: round(drawing.around(value * spread), 3)
            if key.endswith(unit) and not key.startswith("ceiling") and isinstance(value, float)
            else value
            for key, value in rates.items()
        }

    gemm = {type_: drawn(rates, "tflops") for type_, rates in gpu["gemm"].items()}
    return {**gpu, "gemm": gemm, "memory": drawn(gpu["memory"], "_gb_s"), "traces": gpu["traces"][::READINGS]}
