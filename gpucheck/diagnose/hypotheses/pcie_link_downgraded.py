"""A GPU, or every GPU, runs at a lower PCIe generation than card and slot can do."""

from collections.abc import Iterator
from dataclasses import replace

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import UNDER_LOAD, candidates, impossible, other_link, port_read, words
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.model.diagnosis.observations import Port

PRIOR, PRIOR_ALL = 0.010, 0.006
READ_PRIOR = {"load": 20.0, None: 0.3, "idle": 0.03}
NOT_RESTING = 2.0  # a link that rests is at the first generation, not at one between
ALL_READ = {"load": 0.15, None: 0.03, "idle": 0.002}


def instances(m: Machine) -> Iterator[Instance]:
    """Each generation below the GPU's, or the very one that was read under load."""
    guest = m.host.virtual and not any(row.gen for row in m.measured.under_load)
    for i in () if guest else candidates(m):
        yield from _of_gpu(m, i)
    every = tuple(range(m.count))
    most = {m.link[i].max_generation for i in every}
    top = next(iter(most)) if len(most) == 1 else None
    if m.count > 1 and top and not any(_full_speed(m, i) for i in every):
        read = {(gpu.pcie.gen, gpu.pcie.read) for gpu in m.seen.gpus}
        for generation in _lower(m, every, top):
            identical = read in [{(generation, how)} for how in ALL_READ]
            prior = ALL_READ[next(iter(read))[1]] if identical else PRIOR_ALL / 2.5 ** (top - generation)
            yield _instance(m, every, generation, prior)


def _lower(m: Machine, gpus: tuple[int, ...], top: int) -> Iterator[int]:
    """Generations below the best at which the links of these GPUs may run, the highest first."""
    for generation in range(top - 1, 0, -1):
        if not any(impossible(m, i, generation, m.link[i].max_width) for i in gpus):
            yield generation


def _full_speed(m: Machine, i: int) -> bool:
    rows = [row for row in m.measured.under_load if row.gpu == i]
    pcie = m.gpu(i).pcie
    now = max((row.gen or 0 for row in rows), default=pcie.gen if pcie.read == "load" else 0) or 0
    return bool(now and now >= (m.link[i].max_generation or now))


def _of_gpu(m: Machine, i: int) -> Iterator[Instance]:
    top = m.link[i].max_generation
    if top is None:
        for part in (0.5, 0.25) if m.count > 2 else ():
            slower = _instance(m, (i,), 0, PRIOR / 3)
            yield replace(slower, change=Change(parts={i: part}), seen=f"{part:g} of the others")
        return
    if _full_speed(m, i):
        return
    port = port_read(m, i, width=False)
    if port is not None and port.read == "load" and port.gen and not m.host.virtual:
        yield _instance(m, (i,), port.gen, READ_PRIOR["load"], read=port, direct=True)
        return
    for generation in _lower(m, (i,), top):
        read = port if port is not None and port.gen == generation else None
        prior = PRIOR / 3
        if read is not None:
            prior = NOT_RESTING if read.read is None and generation > 1 else READ_PRIOR[read.read]
        yield _instance(m, (i,), generation, prior, read=read)


def _instance(
    m: Machine, gpus: tuple[int, ...], generation: int, prior: float, *, read: Port | None = None, direct: bool = False
) -> Instance:
    most = m.link[gpus[0]]
    raw = rate_of(generation, most.max_width or 16)
    every = len(gpus) > 1
    who = f"all {m.count} GPUs run" if every else "this GPU's PCIe link runs"
    where = f"at generation {generation} of {most.max_generation}" if generation else "as if at a lower generation"
    return other_link(
        m,
        "pcie-link-downgraded",
        gpus,
        (generation, None),
        prior=prior,
        seen=f"Gen{generation}",
        wanted=f"Gen{most.max_generation}",
        why=f"{who} {where}"
        + (f", so its link rate is at most {raw:g} GB/s" if raw else "")
        + ("; check what they share (BIOS setting, riser type, backplane)" if every else ""),
        decide=f"{UNDER_LOAD} shows PCIe Generation Current {generation}",
        evidence=(f"read: {words(read)}",) if read else (),
        direct=direct,
    )


HYPOTHESIS = Hypothesis(
    name="pcie-link-downgraded",
    causes=("pcie-link-downgraded",),
    title="A lower PCIe generation",
    possible_when="the link was not read under load at the full generation of card and ports above it, and no faster "
    "transfer over it was measured",
    predicts="everything that passes the GPU's own link at the rate of the lower generation; half of one generation is "
    "the same number as half of the lanes, so only a reading can decide between the two",
    prior="1 % per GPU, 0.6 % for all GPUs; 20 to 1 if it was read under load; an idle reading hardly counts",
    never_explains="copies slower than staged ones, one slow direction, wrong data, NVLink pairs",
    sources=("Syllo/nvtop#6", "hwloc#653", "tinygrad/open-gpu-kernel-modules#6", "jan#183"),
    instances=instances,
)
