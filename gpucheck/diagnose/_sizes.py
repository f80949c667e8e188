"""How many GPUs the observations speak of: every matrix and every index must agree."""

from gpucheck.knowledge.strict import Value
from gpucheck.model.diagnosis.observations import Hang, Observations, ObservedGpu


def sized(seen: Observations, root: Value) -> Observations:
    """The same observations with one entry a GPU. Raises ObservationProblem where two sizes contradict each other."""
    matrices = {
        "matrix": seen.matrix,
        "p2p_access": seen.p2p_access if isinstance(seen.p2p_access, tuple) else None,
        "p2p_status": seen.p2p_status,
        **{f"measured.{name}": getattr(seen.measured, name) for name in MATRICES},
    }
    sizes = {"gpus": len(seen.gpus), **{name: len(matrix) for name, matrix in matrices.items() if matrix}}
    known = {name: size for name, size in sizes.items() if size}
    if len(set(known.values())) > 1:
        words = ", ".join(f"{name} has {size}" for name, size in known.items())
        raise root.problem(f"the number of GPUs differs: {words}")
    count = max(known.values(), default=0)
    named = sorted(set(_indexes(seen)))
    if count and named and named[-1] >= count:
        raise root.problem(f"GPU {named[-1]} is named, but there are {count} GPUs (0 to {count - 1})")
    if seen.gpus or not (count or named):
        return seen
    fields = {name: getattr(seen, name) for name in seen.__struct_fields__ if name != "gpus"}
    return Observations(gpus=tuple(ObservedGpu() for _ in range(count or named[-1] + 1)), **fields)


MATRICES = (
    "p2p_uni_gb_s", "p2p_bidir_gb_s", "staged_uni_gb_s", "staged_bidir_gb_s", "p2p_latency_us", "staged_latency_us",
    "p2p_uni_error", "p2p_uni_alone", "p2p_bidir_error", "p2p_bidir_alone",
)  # fmt: skip


def _indexes(seen: Observations) -> list[int]:
    measured = seen.measured
    pairs = [
        *(pair for flow in measured.flows for pair in flow.pairs),
        *(pair for damaged in measured.damaged for pair in damaged.pairs),
        *(pair for failure in measured.failures for pair in failure.pairs),
        *(measured.integrity_bad_pairs or ()),
    ]
    hang = measured.hang.gpus if isinstance(measured.hang, Hang) else ()
    return [
        *(index for pair in pairs for index in pair),
        *(row.gpu for row in measured.host_device),
        *(row.gpu for row in measured.under_load),
        *(index for uplink in seen.uplinks for index in uplink.gpus),
        *hang,
    ]
