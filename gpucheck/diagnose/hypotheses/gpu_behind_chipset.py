"""A GPU on the chipset's lanes instead of the CPU's."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import candidates, impossible, maybe_chipset, other_link, port_read, words
from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.model.finding.verdict import Verdict

PRIOR, READ = 0.012, 30.0
NARROW = {"load": 45.0, None: 2.0, "idle": 0.5}
CHIPSET_LANES = ((4, 4), (3, 4), (3, 2))


def instances(m: Machine) -> Iterator[Instance]:
    """Every GPU whose path crosses the chipset, and those as slow as if."""
    for i, gpu in enumerate(m.seen.gpus):
        bridge = next((port for port in gpu.path if port.kind == "chipset"), None)
        if bridge is not None:
            path = f"path: {bridge.bus_id or 'chipset'}"
            yield from (_instance(m, i, link, READ, path, direct=True) for link in CHIPSET_LANES)
        elif maybe_chipset(m, i) and i in candidates(m):
            read = port_read(m, i, width=True)
            if read is not None and read.width and read.width <= 4:
                yield _instance(m, i, (read.gen or 4, read.width), NARROW[read.read], words(read))
            elif read is None:
                yield from (_instance(m, i, link, PRIOR) for link in CHIPSET_LANES if not impossible(m, i, *link))


def _instance(
    m: Machine, i: int, link: tuple[int, int], prior: float, read: str = "", *, direct: bool = False
) -> Instance:
    return other_link(
        m,
        "gpu-behind-chipset",
        (i,),
        link,
        prior=prior / len(CHIPSET_LANES),
        verdict=Verdict.WARN if read else Verdict.FAIL,
        seen="its path crosses the chipset" if read else f"as fast as Gen{link[0]} x{link[1]}",
        wanted="lanes of the CPU",
        why="this GPU is connected to the chipset and shares its PCIe lanes with disks and network",
        decide="lspci -tv shows whether the GPU's path to the CPU crosses the chipset",
        evidence=(read,) if read else (),
        direct=direct,
    )


HYPOTHESIS = Hypothesis(
    name="gpu-behind-chipset",
    causes=("gpu-behind-chipset",),
    title="A GPU on the chipset's lanes",
    possible_when="one socket, at most six GPUs, not virtual, the path not read; certain where it crosses the chipset",
    predicts="everything of this GPU at Gen4 x4 or less",
    prior="1.2 % a GPU; 30 to 1 where the path crosses the chipset, 15 to 1 where the link was read at x4 or less",
    never_explains="full host copies, slow pairs without this GPU",
    sources=("club-3090#895",),
    instances=instances,
)
