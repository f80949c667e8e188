"""A GPU's PCIe link as its registers tell it, believed only where it was read under load or the numbers agree."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.diagnose.rules._links import FITS_TO, contradicted, narrowed, slowed, together, words
from gpucheck.model.observations import Port
from gpucheck.model.verdict import Verdict

UNDER_LOAD = "read it again while copying: nvidia-smi -q -d PCIE; lspci -vv -s BUS_ID | grep -e LnkCap -e LnkSta"


def judge(case: Case) -> Iterator[Diagnosis]:
    """Every GPU's own link, and the port above that serves it alone."""
    m = case.machine
    designed = [i for i in range(m.count) if m.is_narrow_by_design(i)]
    yield from together(m, [d for i in range(m.count) if i not in designed if (d := _first(case, i))])
    if designed:
        pcie = m.gpu(designed[0]).pcie
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.PASS,
                "narrow-by-design",
                "possible" if not m.host.virtual else "likely",
                subject="host" if len(designed) > 1 else f"gpu:{m.label(designed[0])}",
                seen=f"x{pcie.width}",
                wanted=f"x{pcie.max_width}",
                why=_design_words(m, designed),
            )
        )


def _first(case: Case, i: int) -> Diagnosis | None:
    gpu = case.machine.gpu(i)
    ports = [gpu.pcie, *(port for port in gpu.path if _own(case.machine, port))]
    return next((found for port in ports if (found := _judged(case, i, port))), None)


def _own(m: Machine, port: Port) -> bool:
    return port.kind != "chipset" and len(m.behind(port)) <= 1


def _design_words(m: Machine, designed: list[int]) -> str:
    if m.host.virtual:
        return "inside a virtual machine the width is the provider's choice, not a fault of the link"
    if any(port.max_width for i in designed for port in m.gpu(i).path):
        return "the port above has no more lanes than are in use: the board gives this slot that many"
    return "all cards have the same half of their lanes, as boards that split the slots give them"


def _judged(case: Case, i: int, port: Port) -> Diagnosis | None:
    m = case.machine
    proven = case.rates.proven(i)
    mine = [pair for pair in m.pairs if i in pair and m.direct[pair] is not None and not m.is_nvlink(pair)]
    mine = mine or [pair for pair in m.pairs if i in pair and not m.is_nvlink(pair)]
    if contradicted(port, proven):
        return None
    narrow = narrowed(port)
    if not narrow and not (slowed(port) and (port.read == "load" or (port.read is None and _agrees(case, i, port)))):
        return None
    bad = narrow or port.read == "load" or proven > 0
    raw = rate_of(port.gen if slowed(port) and not narrow else m.link(i).max_generation, port.width)
    where = f"the port above it, {port.bus_id}," if port is not m.gpu(i).pcie and port.bus_id else "its PCIe link"
    return Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL if bad else Verdict.WARN,
            "pcie-width-reduced" if narrow else "pcie-link-downgraded",
            "certain" if port.read == "load" else "likely",
            subject=f"gpu:{m.label(i)}",
            seen=words(port).partition(" of ")[0],
            wanted=words(port).partition(" of ")[2],
            why=f"{where} runs at {words(port)}"
            + (f", so nothing of this GPU can exceed {raw:g} GB/s raw" if raw else "")
            + (f"; {proven:.3g} GB/s was the most that passed" if proven else ""),
            fix=UNDER_LOAD.replace("BUS_ID", m.gpu(i).bus_id or "<bus id>"),
            evidence=(f"current {words(port)}, read {port.read or 'it was not told when'}",),
        ),
        frozenset(mine),
    )


def _agrees(case: Case, i: int, port: Port) -> bool:
    """Nothing was seen to pass that this link could not carry, and something was measured."""
    proven, most = case.rates.proven(i), rate_of(port.gen, port.width or case.machine.link(i).max_width)
    return most is not None and 0 < proven <= most * FITS_TO


RULE = Rule(
    name="link-state",
    order=30,
    title="A GPU's PCIe link by its registers",
    looks_at="gpus.pcie and gpus.path (gen, width, max_gen, max_width, read), host.virtual, everything measured with "
    "that GPU",
    formula="width below maximum, or generation below maximum read under load; a reading that measured copies exceed "
    "(> 0.97 x raw) was taken idle and says nothing; gen read idle is never judged",
    sources=("Syllo/nvtop#6", "hwloc#653", "tinygrad/open-gpu-kernel-modules#6", "aws-k8s-tester#806", "jan#183"),
    judge=judge,
)
