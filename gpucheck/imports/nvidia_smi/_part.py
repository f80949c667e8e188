"""GPUs that nvidia-smi listed, as a part of a paste."""

from collections.abc import Sequence

from gpucheck.imports.nvidia_smi._facts import Facts, is_virtual, observed
from gpucheck.model.diagnosis.observations import Observations, ObservedHost
from gpucheck.model.diagnosis.paste import Message, Part
from gpucheck.model.host.hardware import Gpu
from gpucheck.model.host.readings import NvmlReading
from gpucheck.printable import counted


def part(
    gpus: Sequence[Gpu],
    facts: Sequence[Facts] = (),
    *,
    driver: str | None = None,
    cuda: str | None = None,
    messages: Sequence[Message] = (),
    extra: Sequence[str] = (),
) -> Part:
    """What was read. facts: of each GPU, where there are any.

    The GPUs may be some of the machine's only: run/pastes/one_machine.py gives each its place among the others.
    """
    seen = tuple(observed(gpu, facts[at] if at < len(facts) else None) for at, gpu in enumerate(gpus))
    virtual = True if any(is_virtual(one) for one in facts) else None
    return Part(
        observations=Observations(gpus=seen, host=ObservedHost(driver=driver, virtual=virtual)),
        nvml=NvmlReading(driver_version=driver, nvml_version=None, cuda_version=cuda, gpus=tuple(gpus)),
        messages=tuple(messages),
        looked_at=tuple(dict.fromkeys((*_looked_at(gpus), *extra))),
    )


def _looked_at(gpus: Sequence[Gpu]) -> list[str]:
    """Describe what the text contains, and of how many GPUs."""
    counts = {
        "ECC error counters": sum(gpu.health.ecc_counts.volatile_uncorrected is not None for gpu in gpus),
        "row remapping": sum(gpu.health.row_remap is not None for gpu in gpus),
        "retired pages": sum(gpu.health.retired_pages is not None for gpu in gpus),
        "clock event reasons": sum(gpu.health.clocks_event_reasons is not None for gpu in gpus),
        "temperatures": sum(gpu.health.temperature_c is not None for gpu in gpus),
        "power limits": sum(None not in (gpu.health.power_limit_w, gpu.health.power_default_w) for gpu in gpus),
        "PCIe links": sum(None not in (gpu.pcie.width, gpu.pcie.max_width) for gpu in gpus),
        "MIG mode": sum(gpu.health.mig is not None for gpu in gpus),
        "compute mode": sum(gpu.health.compute_mode is not None for gpu in gpus),
        "NVLinks": sum(bool(gpu.nvlinks) for gpu in gpus),
    }
    found = [f"{what} of {counted(count, 'GPU')}" for what, count in counts.items() if count]
    return found or ([f"names of {counted(len(gpus), 'GPU')}"] if gpus else [])
