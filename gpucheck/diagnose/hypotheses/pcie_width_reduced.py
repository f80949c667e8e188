"""A GPU, or every GPU, runs with fewer PCIe lanes than card and slot have."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses import _links as links
from gpucheck.diagnose.hypotheses._links import other_link
from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.model.diagnosis.observations import Port
from gpucheck.model.finding.verdict import Verdict

PRIOR, PRIOR_ALL = 0.012, 0.004
# Half the lanes is what boards do by design; a quarter or less is a fault or the wrong slot.
ONE_WEIGHT = {8: 0.4, 4: 0.25, 2: 0.1, 1: 0.25}
ALL_WEIGHT = {8: 0.6, 4: 0.3, 2: 0.05, 1: 0.05}
READ_PRIOR = {"load": 20.0, None: 2.0, "idle": 0.5}


def instances(m: Machine) -> Iterator[Instance]:
    """Each width below the GPU's, or the very one that was read."""
    for i in links.candidates(m):
        yield from _of_gpu(m, i)
    every = tuple(range(m.count))
    identical = len({m.link[i].max_width for i in every}) == 1
    if m.count > 1 and identical and not any(links.port_read(m, i, width=True) for i in every):
        for lanes in _fewer(m, every):
            yield _instance(m, every, lanes, PRIOR_ALL * ALL_WEIGHT[lanes])


def _fewer(m: Machine, gpus: tuple[int, ...]) -> Iterator[int]:
    """Widths below the best that the links of these GPUs may have, the widest first."""
    for lanes in links.LANES:
        narrower = lanes < (m.link[gpus[0]].max_width or 16)
        if narrower and not any(links.impossible(m, i, m.link[i].max_generation, lanes) for i in gpus):
            yield lanes


def _of_gpu(m: Machine, i: int) -> Iterator[Instance]:
    port, now = links.port_read(m, i, width=True), m.gpu(i).pcie
    if port is not None and port.width and not m.is_narrow_by_design(i):
        if not links.impossible(m, i, m.link[i].max_generation, port.width):
            half = links.maybe_by_design(m, i)
            sure = port.read == "load" and not half and not (port.width <= 4 and links.maybe_chipset(m, i))
            prior = READ_PRIOR[port.read] * (0.5 if half else 1.0)
            yield _instance(m, (i,), port.width, prior, read=port, direct=sure)
        return
    complete = now.width and now.max_width and now.read == "load"
    nothing_to_compare_with = m.raw[i] is None and m.count < 3
    if not complete and not nothing_to_compare_with:
        for lanes in _fewer(m, (i,)):
            yield _instance(m, (i,), lanes, PRIOR * ONE_WEIGHT[lanes])


def _identical_widths(m: Machine, i: int) -> bool:
    """All GPUs of this model were read at the same lower width: how the board connects them, not many faults."""
    widths = [gpu.pcie.width for gpu in m.seen.gpus if gpu.model == m.gpu(i).model]
    return len(widths) > 1 and len(set(widths)) == 1 and None not in widths


def _instance(
    m: Machine, gpus: tuple[int, ...], lanes: int, prior: float, *, read: Port | None = None, direct: bool = False
) -> Instance:
    most = m.link[gpus[0]]
    raw = rate_of(most.max_generation, lanes)
    who = "every GPU" if len(gpus) > 1 else "this GPU"
    return other_link(
        m,
        "pcie-width-reduced",
        gpus,
        (None, lanes),
        prior=prior,
        verdict=Verdict.WARN if _identical_widths(m, gpus[0]) else Verdict.FAIL,
        seen=f"x{lanes}",
        wanted=f"x{most.max_width or 16}",
        why=f"{who} runs at x{lanes}, so its link rate is at most {raw:g} GB/s"
        if raw
        else f"{who} is slow with all peers, as x{lanes} of x{most.max_width or 16} would be",
        decide=f"{links.UNDER_LOAD} shows Link Width Current {lanes}x",
        evidence=(f"read: {links.words(read)}",) if read else (),
        direct=direct,
    )


HYPOTHESIS = Hypothesis(
    name="pcie-width-reduced",
    causes=("pcie-width-reduced",),
    title="Fewer PCIe lanes",
    possible_when="the link was not read at full width under load, and no faster transfer over it was measured",
    predicts="everything that passes the GPU's own link (peer copies one way and both ways, staged and host copies) at "
    "the rate of x8, x4, x2 or x1, near and far; pairs without this GPU as usual",
    prior="1.2 % per GPU, 0.4 % for all GPUs; 20 to 1 if it was read under load",
    never_explains="copies slower than staged ones, one slow direction, latency, wrong data, NVLink pairs",
    sources=("PCIe link rates in gpucheck/knowledge/links.yml", "aws-k8s-tester#806", "jan#183"),
    cases=("keras-multi-gpu 7gforce-v2",),
    instances=instances,
)
