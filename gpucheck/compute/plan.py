"""What is run, in which order and for how long. Pure."""

from collections.abc import Iterator, Sequence

from gpucheck.compute.values import ComputeStep

TYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8")
WAYS = ("read", "write", "copy")
# One attention step and one reduction: in the type that training uses, where the device has it.
ATTENTION = ("bf16", "fp16", "fp32")
REDUCTION = "reduction-fp32"
# The time of one step on every GPU at once. HEAT_S: of all products together, which is what heats a GPU up.
MATRIX_S, HEAT_S, MEMORY_S, RESULTS_S, COLD_S = 3.0, 18.0, 1.5, 1.2, 0.3
CPU_S = 0.2
ALONE_S = 2.0
MOST_ALONE = 8  # a host on which more looks slow is slow as a whole


def operations(types: Sequence[str]) -> tuple[str, ...]:
    """Return the operations that are repeated: products in every type, a reduction, an attention step."""
    attention = next((type_ for type_ in ATTENTION if type_ in types), None)
    return (
        *(f"matrix-{type_}" for type_ in TYPES if type_ in types),
        REDUCTION,
        *((f"attention-{attention}",) if attention else ()),
    )


def steps(types: Sequence[str], *, small: bool = False) -> Iterator[ComputeStep]:
    """Yield the steps for devices with these types: results cold, rates under load, results hot, then with pauses.

    small: times for CPUs.
    """

    def seconds(on_gpu: float) -> float:
        return CPU_S if small else on_gpu

    for operation in operations(types):
        yield ComputeStep(kind="results", what=operation, seconds=seconds(COLD_S), phase="cold")
    for way in WAYS:
        yield ComputeStep(kind="memory", what=way, seconds=seconds(MEMORY_S))
    able = [type_ for type_ in TYPES if type_ in types]
    for type_ in able:
        yield ComputeStep(kind="matrix", what=type_, seconds=seconds(max(MATRIX_S, HEAT_S / len(able))))
    for operation in operations(types):
        yield ComputeStep(kind="results", what=operation, seconds=seconds(RESULTS_S), phase="hot")
    stepped = operations(types)[-1]
    yield ComputeStep(kind="results", what=stepped, seconds=seconds(RESULTS_S), phase="steps")
