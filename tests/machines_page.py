"""The machines that gpucheck knows, as a Markdown page: docs/machines.md.

``python -m tests.machines_page`` prints it. A file in tests/data/machines is a row, without a change of code.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from gpucheck.host.recording import Recording, read_recording
from gpucheck.model import Verdict
from gpucheck.run import verification as run

DATA = Path(__file__).parent / "data"
MACHINES = DATA / "machines"
MOST_BYTES = 1_000_000
QUICK = run.select(run.all_steps(), level="quick", only=(), skip=())
HEAD = """<!-- Made by: python -m tests.machines_page > docs/machines.md -->
# Machines

Verdicts are tested on machines that their owners made public. A recording of yours is worth more than any of them.

## Give a recording

1. On a GPU host, as any user, with gpucheck installed (`pip install`, no checkout):
   `gpucheck record --full -o my-machine.json.gz`. It asks before it puts load on the GPUs, takes at most two minutes
   (`--within`), changes nothing and sends nothing. Root adds the kernel log and the registers of bridges.
2. Read it: `gunzip -c my-machine.json.gz | less`. First is what gpucheck did not expect, then the facts that its checks
   read, then the output of each program ([parts of the file](measuring.md#on-a-real-gpu)). Names, addresses, UUIDs,
   serial numbers and secrets are replaced; a host or project that is a plain word is not.
   `gpucheck verify --from my-machine.json.gz` gives the verdict of the host, anywhere.
3. Open a pull request with the file in `tests/data/machines` (template: `?template=machine.md`), at most 1 MB.

From then on its verdict is a row below and a test.
"""
RECORDED = """
## Recordings

| file | GPUs | driver | recorded | verdict | causes |
|---|---|---|---|---|---|
"""
NONE = "\n## Recordings\n\nNone yet: all recordings in the tests are of simulated machines or of NVIDIA's mock NVML.\n"
PUBLIC = """
## Public measurements and topology dumps

Files below `tests/data/perf` and `tests/data/topo`, each with its source. The measurements of healthy machines
calibrated the expected rates; the others are cases that must be named. `tests/data/captures` has seven pages of
`nvidia-smi -q -x`, `tests/data/foreign_nvml` recordings of NVIDIA's mock NVML.

| GPU | healthy | with a fault or unknown | topology dumps | first sources |
|---|---|---|---|---|
"""


class Machine(NamedTuple):
    """A row. causes: of findings that warn or fail."""

    name: str
    gpus: str
    driver: str
    recorded: str
    verdict: str
    causes: str


def machine(path: Path) -> Machine:
    """The row of a recording. Raises AssertionError for one that is not redacted or too large."""
    kept: Recording = read_recording(path)
    assert kept.redacted, f"{path.name}: not redacted"
    assert path.stat().st_size <= MOST_BYTES, f"{path.name}: more than {MOST_BYTES:,} bytes"
    report = run.verify(kept, QUICK)
    loud = sorted({str(f.cause or f.code) for f in report.findings if f.verdict in (Verdict.WARN, Verdict.FAIL)})
    gpus = ", ".join(f"{number} x {name}" for name, number in Counter(gpu.name for gpu in kept.gpus).items())
    driver = getattr(kept.nvml, "driver_version", None) or ""
    return Machine(path.stem.partition(".")[0], gpus, driver, kept.recorded[:10], report.verdict.value, ", ".join(loud))


def public() -> Iterator[str]:
    """A row for each GPU model of the public cases."""
    healthy: Counter[str] = Counter()
    others: Counter[str] = Counter()
    dumps: Counter[str] = Counter()
    sources: dict[str, list[str]] = {}
    for folder in ("perf", "topo"):
        for path in sorted((DATA / folder).glob("*.yml")):
            case = yaml.safe_load(path.read_text(encoding="utf-8"))
            gpus = case.get("gpus") or (case.get("observations") or {}).get("gpus") or {}
            models = {one.get("model") for one in gpus} if isinstance(gpus, list) else {gpus.get("model")}
            for model in sorted(filter(None, models)):
                short = re.sub(r"^NVIDIA (GeForce )?", "", str(model))
                count = dumps if folder == "topo" else healthy if case.get("state") == "healthy" else others
                count[short] += 1
                sources.setdefault(short, []).append(str(case.get("source", "")))
    for model in sorted(sources):
        first = [one for one in dict.fromkeys(sources[model]) if "#" in one][:3]
        yield f"| {model} | {healthy[model]} | {others[model]} | {dumps[model]} | {', '.join(first)} |"


def page(folder: Path = MACHINES) -> str:
    """Return the page."""
    rows = [machine(path) for path in sorted(folder.glob("*.json.gz"))]
    recorded = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return HEAD + (RECORDED + recorded if rows else NONE) + PUBLIC + "\n".join(public()) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
