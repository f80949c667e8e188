"""What people paste: topologies, measurements, kernel logs."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import yaml

from tests.imports import corpus, nccl
from tests.imports.pastes import samples as wrapped

DATA = Path(__file__).parents[2] / "data"


def _raw(folder: str) -> list[bytes]:
    cases = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted((DATA / folder).glob("*.yml")))
    return [str(case["raw"]).encode() for case in cases if case.get("raw")]


@cache
def matrices() -> tuple[bytes, ...]:
    """nvidia-smi topo -m."""
    return tuple(corpus.raw(case).encode() for case in corpus.CASES)


@cache
def xml() -> tuple[bytes, ...]:
    """NCCL's topology."""
    return (nccl.hgx(2, 4).encode(), nccl.mesh().encode(), *_raw("nccl"))


def topologies() -> tuple[bytes, ...]:
    """Every kind that holds a topology."""
    return (*matrices(), *xml())


@cache
def measurements() -> tuple[bytes, ...]:
    """Printed by tools, as text and as JSON."""
    return tuple(path.read_bytes() for path in sorted((DATA / "bandwidth").iterdir()))


@cache
def kernel_logs() -> tuple[bytes, ...]:
    """dmesg, journalctl and the rest; long ones are cut, for each line costs what a line costs."""
    return tuple(raw[:12_000] for raw in _raw("kernel_log/cases"))


@cache
def kernel_messages() -> tuple[bytes, ...]:
    """As /dev/kmsg and journalctl --output=short-monotonic give them to gpucheck itself."""
    lines = [raw.decode(errors="replace").splitlines()[:30] for raw in kernel_logs()]
    ring = ("\n".join(f"6,{n},{n * 1000},-;{line}" for n, line in enumerate(log)).encode() for log in lines)
    journal = (
        "\n".join(f"[{n:5}.000001] node07 kernel: {line}" for n, line in enumerate(log)).encode() for log in lines
    )
    return (*ring, *journal)


@cache
def corpus_pastes() -> tuple[bytes, ...]:
    """Pastes from public places; long ones are cut."""
    return tuple(raw[:12_000] for raw in _raw("pastes"))


@cache
def mixed() -> tuple[bytes, ...]:
    """Two tools and prose in one text, and what stands around pastes."""
    samples, wrappers = list(wrapped.samples().values()), list(wrapped.WRAPPERS.values())
    both = [f"It hangs:\n{one}\nand\n{other}" for one, other in pairwise(samples)]
    around = [wrap(samples[n % len(samples)]) for n, wrap in enumerate(wrappers)]
    return (*corpus_pastes(), *(text.encode() for text in (*both, *around)))


def everything() -> tuple[bytes, ...]:
    """All of them: for readers that have to tell what an input is."""
    return (*topologies(), *measurements(), *kernel_logs())
