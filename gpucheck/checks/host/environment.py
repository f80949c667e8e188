"""Environment: do variables or configuration files left over from earlier tuning change what NCCL and CUDA do?

Sources: the environment of this process, /etc/nccl.conf, ~/.nccl.conf and the file that NCCL_CONF_FILE names
(NAME=VALUE lines, which NCCL reads when the variable is not set). What each does: gpucheck/knowledge/environment.yml.
CUDA_VISIBLE_DEVICES is evaluated by what it hides: inside a scheduler's job it is the job's share, elsewhere every
later program loses the GPUs that it omits.
"""

from collections.abc import Iterator, Mapping

from gpucheck.checks._case import Case, observed
from gpucheck.checks._machine import Machine
from gpucheck.checks._nvml import not_looked, quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.tables import Variable, variables
from gpucheck.model import Finding, Gpu, NvmlFailure
from gpucheck.model.diagnosis.observations import Collective
from gpucheck.model.facts import Facts

NAME = "environment"
# As a reader writes the path, and as facts do.
FILES = {"/etc/nccl.conf": "/etc/nccl.conf", "~/.nccl.conf": "{home}/.nccl.conf"}
CONF_FILE = "NCCL_CONF_FILE"
# What images of Azure set in /etc/nccl.conf, and the folder of its topology files (Azure/azhpc-images, customizations).
TOPOLOGY, OF_AZURE, AZURE = "NCCL_TOPO_FILE", ("NCCL_TOPO_FILE", "NCCL_IGNORE_CPU_AFFINITY"), "/opt/microsoft/"
VISIBLE = "CUDA_VISIBLE_DEVICES"
JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")


def _settings(text: str | None) -> dict[str, str]:
    lines = (line.strip() for line in (text or "").splitlines())
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for each variable that changes something, else one for the host."""
    own = _own_file(facts)
    files = {**FILES, **({own: own} if own.startswith("/") else {})}
    steering = [
        (place, variable, settings[variable.name])
        for place, settings in {
            "environment": facts.environment,
            **{place: _settings(facts.texts[path]) for place, path in files.items()},
        }.items()
        for variable in _changing(settings)
    ]
    unread = own != "" and (own not in files or facts.texts[own] is None)
    if unread:
        evidence = (f"environment: {CONF_FILE}={own}",)
        yield Subject(check=NAME, evidence=evidence).unknown("host.nccl-file-unreadable", path=own)
    for place, variable, value in steering:
        seen, line = f"{variable.name}={value}", f"{place}: {variable.name}={value}"
        subject = Subject(check=NAME, evidence=(line,))
        if place == "environment":
            yield subject.warns("host.variable-set", seen, variable=variable.name, effect=variable.effect)
        else:
            yield subject.warns("host.variable-in-file", seen, path=place, effect=variable.effect)
    hidden = _hidden(facts)
    if hidden is not None:
        yield hidden
    if not steering and hidden is None and not unread:
        names = ", ".join(sorted(facts.environment)) or "none"
        evidence = (f"variables of CUDA, NCCL and the frameworks that are set: {names}",)
        yield Subject(check=NAME, evidence=evidence).passes("no variable that changes CUDA or NCCL")


def _own_file(facts: Facts) -> str:
    return facts.environment.get(CONF_FILE, "").strip()


def _changing(settings: Mapping[str, str]) -> Iterator[Variable]:
    """The variables that change something in one place, but for what images of Azure set."""
    azure = OF_AZURE if settings.get(TOPOLOGY, "").startswith(AZURE) else ()
    known = (variable for variable in variables().values() if variable.name not in azure)
    return (variable for variable in known if variable.changes(settings.get(variable.name, "")))


def _hidden(facts: Facts) -> Finding | None:
    """GPUs that CUDA programs started from here would not see; None where it is all, or a job's own share."""
    chosen = facts.environment.get(VISIBLE)
    if chosen is None or any(name in facts.environment for name in JOBS) or "MIG-" in chosen:
        return None
    if isinstance(facts.nvml, NvmlFailure):
        return not_looked(NAME, facts.nvml)
    gpus = facts.nvml.gpus
    visible = _visible(chosen, gpus)
    if len(visible) == len(gpus):
        return None
    names = ", ".join(gpu.pci_bus_id for gpu in gpus if gpu not in visible)
    subject = Subject(check=NAME, evidence=(f"environment: {VISIBLE}={chosen}", f"hidden: {names}"))
    seen, total = f"{VISIBLE}={chosen}", len(gpus)
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


def rule(case: Case) -> Iterator[Finding]:
    """Each variable of a program's output that changes something."""
    m = case.machine
    measured = ", ".join(dict.fromkeys(row.op or "a collective" for row in m.measured.collectives))
    for variable, value in _in_force(m, *m.measured.collectives):
        lines = (f"{variable.name}={value[:200]}", *((f"measured with it: {measured}",) if measured else ()))
        seen, sure = f"{variable.name}={value[:80]}", "likely" if variable.slows else "possible"
        values = {"variable": variable.name, "effect": variable.effect}
        yield observed(NAME, "host", *lines).warns("host.variable-set", seen, "not set", confidence=sure, **values)
    chosen = m.seen.environment.get(VISIBLE)
    if chosen is not None and (not m.count or chosen.replace(" ", "") != ",".join(map(str, range(m.count)))):
        yield observed(NAME).warns("host.gpus-renumbered", f"{VISIBLE}={chosen[:80]}", "not set", variable=VISIBLE)


def slows_collectives(m: Machine, row: Collective) -> bool:
    """Whether a variable removes a path, an algorithm or channels."""
    return any(variable.slows for variable, _ in _in_force(m, row))


def _in_force(m: Machine, *rows: Collective) -> Iterator[tuple[Variable, str]]:
    settings = {name: value for row in rows for name, value in row.environment.items()} | m.seen.environment
    for variable in _changing(settings):
        # Without peer-to-peer on any pair there is none to switch off.
        unused = variable.name == "NCCL_P2P_DISABLE" and m.pairs and all(m.access[pair] is False for pair in m.pairs)
        if not unused:
            yield variable, settings[variable.name]


def more(facts: Facts) -> Iterator[str]:
    """Further needs: the GPUs of which CUDA_VISIBLE_DEVICES hides some, and the file of NCCL_CONF_FILE."""
    if VISIBLE in facts.environment:
        yield "nvml"
    if (own := _own_file(facts)).startswith("/"):
        yield f"text:{own}"


NEEDS = ("environment", *(f"text:{path}" for path in FILES.values()))
CHECK = quick_check(NAME, "software settings", evaluate, NEEDS, more=more)
