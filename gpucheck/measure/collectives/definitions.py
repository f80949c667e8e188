"""Size and bandwidth of each collective, as NVIDIA/nccl-tests doc/PERFORMANCE.md defines them. Pure functions.

Algorithm bandwidth is size over time. Bus bandwidth multiplies it by a factor that makes it comparable with the link
rate for any number of ranks; this is exact for rings, but not if the switch reduces the data (NVLS).
"""

# Name -> whether one rank contributes 1/n of the bytes that the size counts; otherwise all of them.
ALL = {
    "all_reduce": False,  # counts the buffer on each rank
    "all_gather": True,  # the whole output on each rank
    "reduce_scatter": True,  # the whole input on each rank
    "broadcast": False,  # the buffer
    "all_to_all": True,  # the whole buffer on each rank
    "send_recv": False,  # the buffer, passed on around a ring
}


def bus_factor(name: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth. Raises LookupError for an unknown collective."""
    if name not in ALL:
        raise LookupError(f"unknown collective {name!r}; known: {', '.join(ALL)}")
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if ALL[name] else 1.0


def elements(size_bytes: int, ranks: int, element_bytes: int = 4) -> int:
    """Return the elements of a buffer of about this size, a multiple of the ranks and at least one per rank."""
    return max(1, size_bytes // element_bytes // ranks) * ranks
