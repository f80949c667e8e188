"""Number formats to train in: which hardware has them, and how far rounding may carry a distributed run. Pure."""

from typing import Literal, get_args

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)

# Compute capability from which the hardware has the format. Source: CUDA C++ programming guide, arithmetic throughput.
_SINCE = {"fp32": (0, 0), "fp16": (6, 0), "tf32": (8, 0), "bf16": (8, 0)}

# Largest difference from the single-process reference after 40 steps. A weight gradient is a sum over the samples: in
# 8 or 11 significant bits, two sums of 64 differ from one of 128 by up to 2^-8 or 2^-11 of its size, in every step.
TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 4e-2, "fp16": 1e-2}


def unsupported(precision: str, capability: str | None) -> str | None:
    """Why a device cannot train in a precision and what can be done instead; None where it can.

    capability: compute capability such as ``6.0``; None is a CPU.
    """
    if capability is None:
        if precision != "tf32":
            return None
        return "tf32 is a mode of GPUs from compute capability 8.0 on and does nothing on a CPU: take fp32 or bf16"
    major, _, minor = capability.partition(".")
    usable = [name for name in PRECISIONS if (int(major), int(minor or 0)) >= _SINCE[name]]
    if precision in usable:
        return None
    since = ".".join(map(str, _SINCE[precision]))
    others = " or ".join(usable)
    return f"{precision} needs compute capability {since} or newer, this GPU has {capability}: take {others}"
