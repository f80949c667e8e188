"""Explain errors of CUDA and NVML by number, name or text, and lines whose meaning is known."""

import re
from collections.abc import Callable, Iterator

import click

from gpucheck.cli._shared.common import Problem
from gpucheck.knowledge.xid import CudaError, NvmlError, cuda_errors, nvml_errors

Part = Callable[[str, str], list[str]]
XID = re.compile(r"\bXid \([^)\n]{0,60}\): (?P<code>\d{1,9})\b")
SXID = re.compile(r"\bSXid \([^)\n]{0,60}\): (?P<code>\d{1,9})\b")
PREFIX = re.compile(r"(?:cuda|nvml)[: ]\s{0,3}")
LONGEST = 2000
VERDICT = {
    "pass": "nothing to do for the host",
    "unknown": "UNKNOWN: the error alone does not show a fault of the host",
}


def names() -> list[str]:
    """Every name of an error, for a suggestion."""
    cuda = (name for row in cuda_errors().values() for name in (row.name, row.driver) if name)
    return [*cuda, *(row.name for row in nvml_errors().values())]


def by_name(text: str) -> CudaError | NvmlError | None:
    """The error with this name or exactly this text, in any case; CUDA's before NVML's."""
    wanted = text.strip().lower().rstrip(".")
    only = wanted[:4] if PREFIX.match(wanted) else ""
    wanted = PREFIX.sub("", wanted, count=1)
    short = wanted.removeprefix("nvml_error_")
    for row in cuda_errors().values() if only != "nvml" else ():
        if wanted in {word.lower() for word in (row.name, row.driver, row.text) if word}:
            return row
    for error in nvml_errors().values() if only != "cuda" else ():
        if short == error.name.lower().removeprefix("nvml_error_") or wanted == error.text.lower().rstrip("."):
            return error
    return None


def others(code: int) -> list[str]:
    """Errors of CUDA and NVML with this number, as they are asked for."""
    found = []
    if (cuda := cuda_errors().get(code)) is not None:
        found.append(f"cuda:{code} ({cuda.name or cuda.driver})")
    if (nvml := nvml_errors().get(code)) is not None:
        found.append(f"nvml:{code} ({nvml.name})")
    return found


def error(kind: str, code: int) -> CudaError | NvmlError:
    """The error of ``cuda`` or ``nvml`` with this number. Raises Problem."""
    row = cuda_errors().get(code) if kind == "cuda" else nvml_errors().get(code)
    if row is None:
        where = "https://docs.nvidia.com/cuda/cuda-runtime-api/" if kind == "cuda" else "nvml.h"
        raise Problem(f"{kind}:{code}: not in the table of errors. See: {where}")
    return row


def explained(row: CudaError | NvmlError, part: Part) -> Iterator[str]:
    """What an error means."""
    if isinstance(row, NvmlError):
        yield click.style(f"NVML error {row.code}  {row.name}", bold=True)
        yield from part("text", row.text)
        yield from part("means", row.means)
        yield from _evaluated(row.verdict, row.cause, part)
        yield from part("source", "nvml.h, https://docs.nvidia.com/deploy/nvml-api/")
        return
    from gpucheck.knowledge.messages import meaning

    spoken = " / ".join(name for name in (row.name, row.driver) if name)
    yield click.style(f"CUDA error {row.code}  {spoken}", bold=True)
    yield from part("text", row.text)
    known = meaning("cuda-error", f"{row.name or row.driver}: {row.text}")
    if known is None:
        yield from part("verdict", "none: the program made a call that CUDA rejects; this is not a fault of the host")
    else:
        yield from _message(known[0].key, part)
    yield from part("source", "CUDA runtime and driver API, error codes")


def _evaluated(verdict: str, cause: str | None, part: Part) -> Iterator[str]:
    yield from part("verdict", VERDICT.get(verdict, verdict.upper()))
    if cause:
        yield from part("cause", f"{cause} (gpucheck explain {cause})")


def _message(key: str, part: Part) -> Iterator[str]:
    from gpucheck.knowledge.messages import row

    known = row(key)
    yield from part("means", known.says + (f"; {known.why}" if known.why else ""))
    yield from _evaluated(known.verdict, known.cause, part)
    for step in known.steps:
        yield from part("fix", step.text)


def code_in_line(line: str) -> tuple[str, int] | None:
    """``xid`` or ``sxid`` and its number in a line of a kernel log."""
    for kind, pattern in (("sxid", SXID), ("xid", XID)):
        if match := pattern.search(line[:LONGEST]):
            return kind, int(match["code"])
    return None


def line(text: str, part: Part) -> Iterator[str] | None:
    """What a line that some program printed means; None where nothing knows it."""
    from gpucheck.knowledge.messages import kinds, meaning

    # NCCL's own lines quote errors of CUDA: its table is asked first, since it knows where the call was made.
    for kind in sorted(kinds(), key=lambda kind: kind == "cuda-error"):
        known = meaning(kind, text[:LONGEST])
        if known is not None:
            key, source = known[0].key, known[0].source
            return iter([
                click.style(f"{key}  (message)", bold=True),
                *_message(key, part),
                *part("source", source),
            ])  # fmt: skip
    return None
