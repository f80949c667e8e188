"""A GPU, or every GPU, runs at a lower PCIe generation than card and slot can do."""

from collections.abc import Iterator
from dataclasses import replace

from gpucheck.diagnose.hypotheses._hypothesis import Hypothesis
from gpucheck.diagnose.hypotheses._links import UNDER_LOAD, candidates, impossible, pairs_of, port_read, words
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.diagnose.world import Change, Instance
from gpucheck.model.verdict import Verdict

NOT_RESTING = 2.0
PRIOR, PRIOR_ALL = 0.010, 0.006
ALL_READ = {"load": 0.15, "untold": 0.03, "idle": 0.002, "": 0.0}
READ_PRIOR = {"load": 20.0, None: 0.3, "idle": 0.03}


def instances(m: Machine) -> Iterator[Instance]:
    """Each generation below the GPU's, or the very one that was read under load."""
    guest = m.host.virtual and not any(row.gen for row in m.measured.under_load)
    for i in () if guest else candidates(m):
        yield from _of_gpu(m, i)
    most = {m.link(i).max_generation for i in range(m.count)}
    top = most.copy().pop() if len(most) == 1 else None
    if m.count > 1 and top and not any(_full_speed(m, i) for i in range(m.count)):
        for generation in range(top - 1, 0, -1):
            if not any(impossible(m, i, generation, m.link(i).max_width) for i in range(m.count)):
                prior = ALL_READ[_read_alike(m, generation)] or PRIOR_ALL / 2.5 ** (top - generation)
                yield _instance(m, tuple(range(m.count)), generation, prior)


def _read_alike(m: Machine, generation: int) -> str:
    """How every GPU was read at this very generation: under load, idle or untold; empty where it was not."""
    read = {(gpu.pcie.gen, gpu.pcie.read or "untold") for gpu in m.seen.gpus}
    return next(iter(read))[1] if len(read) == 1 and next(iter(read))[0] == generation else ""


def _full_speed(m: Machine, i: int) -> bool:
    rows = [row for row in m.measured.under_load if row.gpu == i]
    pcie = m.gpu(i).pcie
    now = max((row.gen or 0 for row in rows), default=pcie.gen if pcie.read == "load" else 0) or 0
    return bool(now and now >= (m.link(i).max_generation or now))


def _of_gpu(m: Machine, i: int) -> Iterator[Instance]:
    top = m.link(i).max_generation
    if top is None:
        for part in (0.5, 0.25) if m.count > 2 else ():
            yield replace(
                _instance(m, (i,), 0, PRIOR / 3), change=Change(parts={i: part}), seen=f"{part:g} of the others"
            )
        return
    if _full_speed(m, i):
        return
    port = port_read(m, i, width=False)
    if port is not None and port.read == "load" and port.gen and not m.host.virtual:
        yield _instance(m, (i,), port.gen, READ_PRIOR["load"], read=words(port), direct=True)
        return
    for generation in range(top - 1, 0, -1):
        if not impossible(m, i, generation, m.link(i).max_width):
            told = port is not None and port.gen == generation
            prior = READ_PRIOR[port.read] if told and port is not None else PRIOR / 3
            if told and port is not None and port.read is None and generation > 1:
                prior = NOT_RESTING  # a resting link is at the first generation
            yield _instance(m, (i,), generation, prior, read=words(port) if told and port is not None else "")


def _instance(
    m: Machine, gpus: tuple[int, ...], generation: int, prior: float, *, read: str = "", direct: bool = False
) -> Instance:
    most = m.link(gpus[0])
    raw = rate_of(generation, most.max_width or 16)
    every = len(gpus) > 1
    who = f"all {m.count} GPUs run" if every else "this GPU's PCIe link runs"
    where = f"at generation {generation} of {most.max_generation}" if generation else "as if at a lower generation"
    return Instance(
        cause="pcie-link-downgraded",
        subject="host" if every else f"gpu:{m.label(gpus[0])}",
        prior=prior,
        change=Change(links=dict.fromkeys(gpus, (generation, None))),
        excludes=f"link {'all' if every else gpus[0]}",
        verdict=Verdict.FAIL,
        seen=f"Gen{generation}",
        wanted=f"Gen{most.max_generation}",
        why=f"{who} {where}"
        + (f", so nothing of it can exceed {raw:g} GB/s raw" if raw else "")
        + ("; look for one setting (BIOS, riser type, backplane)" if every else ""),
        decide=f"{UNDER_LOAD} shows PCIe Generation Current {generation}",
        evidence=(f"read: {read}",) if read else (),
        pairs=tuple(pair for i in gpus for pair in pairs_of(m, i)),
        direct=direct,
    )


HYPOTHESIS = Hypothesis(
    name="pcie-link-downgraded",
    causes=("pcie-link-downgraded",),
    title="A lower PCIe generation",
    possible_when="the link was not read at full generation under load, and nothing faster was seen to pass it",
    predicts="everything that passes the GPU's own link at the rate of the lower generation; half of one generation is "
    "the same number as half of the lanes, so only a reading tells the two apart",
    prior="1 % a GPU, 0.6 % for all alike; 20 to 1 where it was read under load; an idle reading hardly counts",
    never_explains="copies slower than staged ones, one slow direction, wrong data, NVLink pairs",
    sources=("Syllo/nvtop#6", "hwloc#653", "tinygrad/open-gpu-kernel-modules#6", "jan#183"),
    instances=instances,
)
