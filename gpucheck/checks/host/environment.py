"""Environment: do variables or configuration files left over from earlier tuning change what NCCL and CUDA do?

Sources: the environment of this process, /etc/nccl.conf and ~/.nccl.conf (NAME=VALUE lines, which NCCL reads when the
variable is not set). What each does: gpucheck/knowledge/environment.yml. CUDA_VISIBLE_DEVICES is evaluated by what it
hides: inside a scheduler's job it is the job's share, elsewhere every later program loses the GPUs that it omits.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpucheck.checks._nvml import not_looked
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.environment import variables
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure

NAME = "environment"
FILES = ("/etc/nccl.conf", "~/.nccl.conf")
VISIBLE = "CUDA_VISIBLE_DEVICES"
JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The steering variables by where they were found: ``environment`` or a file.

    gpus: as NVML lists them, or why it does not; queried only if CUDA_VISIBLE_DEVICES is set.
    """

    found: dict[str, dict[str, str]]
    gpus: tuple[Gpu, ...] | NvmlFailure = ()


def probe(host: Host) -> Values:
    files = {path: _settings(host.read_text(str(Path(path).expanduser()))) for path in FILES}
    found = {"environment": host.environment(), **files}
    if VISIBLE not in found["environment"]:
        return Values(found=found)
    # NVML shows every GPU, whatever the variable is set to.
    nvml = host.nvml()
    return Values(found=found, gpus=nvml if isinstance(nvml, NvmlFailure) else nvml.gpus)


def _settings(text: str | None) -> dict[str, str]:
    lines = (line.strip() for line in (text or "").splitlines())
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for each variable that changes something, else one for the host."""
    known = variables()
    steering = [
        (place, known[name], value)
        for place, settings in values.found.items()
        for name, value in settings.items()
        if name in known and value not in known[name].harmless
    ]
    for place, variable, value in steering:
        seen, line = f"{variable.name}={value}", f"{place}: {variable.name}={value}"
        subject = Subject(check=NAME, evidence=(line,))
        if place == "environment":
            yield subject.warns("host.variable-set", seen, variable=variable.name, effect=variable.effect)
        else:
            yield subject.warns("host.variable-in-file", seen, path=place, effect=variable.effect)
    hidden = _hidden(values)
    if hidden is not None:
        yield hidden
    if not steering and hidden is None:
        names = ", ".join(sorted(values.found["environment"])) or "none"
        evidence = (f"variables of CUDA, NCCL and the frameworks that are set: {names}",)
        yield Subject(check=NAME, evidence=evidence).passes("no variable that changes CUDA or NCCL")


def _hidden(values: Values) -> Finding | None:
    """GPUs that CUDA programs started from here would not see; None where it is all, or a job's own share."""
    environment = values.found["environment"]
    chosen = environment.get(VISIBLE)
    if chosen is None or any(name in environment for name in JOBS) or "MIG-" in chosen:
        return None
    if isinstance(values.gpus, NvmlFailure):
        return not_looked(NAME, values.gpus)
    visible = _visible(chosen, values.gpus)
    if len(visible) == len(values.gpus):
        return None
    names = ", ".join(gpu.pci_bus_id for gpu in values.gpus if gpu not in visible)
    subject = Subject(check=NAME, evidence=(f"environment: {VISIBLE}={chosen}", f"hidden: {names}"))
    seen, total = f"{VISIBLE}={chosen}", len(values.gpus)
    return subject.warns("host.gpus-hidden", seen, variable=VISIBLE, visible=len(visible), total=total)


def _visible(chosen: str, gpus: tuple[Gpu, ...]) -> list[Gpu]:
    """As CUDA reads the list: numbers or beginnings of UUIDs, up to the first that means no GPU; none named twice.

    CUDA numbers the GPUs that work: by place, which is not NVML's index once NVML has lost one.
    Source: CUDA C++ programming guide, environment variables.
    """
    found: list[Gpu] = []
    for word in (word.strip() for word in chosen.split(",")):
        number = int(word) if word.isdecimal() else None
        by_uuid = word.startswith("GPU-")
        gpu = next((g for n, g in enumerate(gpus) if n == number or (by_uuid and g.uuid.startswith(word))), None)
        if gpu is None:
            break
        if gpu in found:
            return []
        found.append(gpu)
    return found


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), probe, evaluate)
