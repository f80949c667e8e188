"""What a full recording shows that gpucheck did not expect: its tables are wrong, or this machine is not healthy."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any

from gpucheck.knowledge.gpus import find_gpu
from gpucheck.model import Gpu
from gpucheck.model.full_record import CudaFailure, Difference, FullRecord, Ran
from gpucheck.run.full_record import COMPUTE, READ_CUDA, TRAIN

# What NVML may answer to a call that is right: success, invalid argument (such as a link that is not there), not
# supported, no permission, not found, no such function, another size of the structure, deprecated.
ORDINARY = frozenset({0, 2, 3, 4, 6, 13, 25, 26})
FAULTLESS = ("pass", "skip")
VERIFY = ("verify, level quick", "verify")
IDENTITY = ("check", "subject", "verdict", "code", "values", "cause")
OF_CEILING = 1.02
SAME_TIME = 0.03  # between copies behind a gate (the word or the spin kernel) and copies timed by events alone
LARGE_MIB = 64


def differences(gpus: Iterable[Gpu], full: FullRecord) -> tuple[Difference, ...]:
    """Return them, what is certain first: programs that failed, answers, then numbers and verdicts."""
    found = [*_models(gpus), *_failed(full)]
    known: set[str] = set()
    for ran in full.programs:
        if ran.name in READERS:
            found += READERS[ran.name](ran)
        for one in _document(_report(ran)).get("findings", ()):
            # Both levels of verify find the same.
            if (key := json.dumps([one.get(name) for name in IDENTITY])) not in known:
                known.add(key)
                found += _finding(ran, one)
    return tuple(found)


def _models(gpus: Iterable[Gpu]) -> Iterator[Difference]:
    for name, capability in sorted({(gpu.name, gpu.compute_capability or "") for gpu in gpus}):
        model = find_gpu(name)
        if model is None:
            yield Difference(source="gpus.yml", subject=name, seen="no row for this model", expected="a row")
        elif capability and model.compute_capability != capability:
            seen = f"compute capability {capability}"
            yield Difference(source="gpus.yml", subject=name, seen=seen, expected=model.compute_capability)


def _failed(full: FullRecord) -> Iterator[Difference]:
    if isinstance(full.cuda, CudaFailure) and any(ran.name == READ_CUDA for ran in full.programs):
        yield Difference(source="cuda", subject="CUDA driver", seen=full.cuda.why)
    for ran in full.programs:
        own = ran.command[:1] == ("-m",)
        broken = ran.status not in (0, 1, 2, 3) and not ran.skipped
        if own and broken:
            last = (ran.errors.strip().splitlines() or [""])[-1]
            seen = ran.why or f"status {ran.status}: {last}"
            yield Difference(source=ran.name, subject="program", seen=seen, expected="an answer")


def _lines(ran: Ran) -> list[dict[str, Any]]:
    """The lines that are JSON: the last one may have been cut."""
    return [_document(line) or {"cut": line} for line in ran.output.splitlines()]


def _nvml_calls(ran: Ran) -> Iterator[Difference]:
    lines = _lines(ran)
    if lines and lines[-1].get("call") != "end":
        last = lines[-1].get("cut", lines[-1])
        yield Difference(source=ran.name, subject="last call", seen=f"no answer: {last}", expected="an answer")
    # Without nvmlInit no other call can succeed.
    asked = lines if not lines or lines[0].get("code", 0) in ORDINARY else lines[:1]
    codes = Counter((one["call"], one["code"]) for one in asked if one.get("code", 0) not in ORDINARY)
    for (call, code), count in sorted(codes.items(), key=str):
        yield Difference(source=ran.name, subject=call, seen=f"code {code}, {count} times")


def _trial(ran: Ran) -> Iterator[Difference]:
    lines = _lines(ran)
    for one in lines:
        if one.get("right") is False:
            seen = f"wrong answer with {one['words']} words"
            yield Difference(source=ran.name, subject=f"{one['part']}: {one['kernel']}", seen=seen, expected="right")
        if "error" in one:
            yield Difference(source=ran.name, subject=one["part"], seen=one["error"])
    sizes = {(one.get("copy_mib"), one.get("way")): one for one in lines if one.get("copy_mib", 0) >= LARGE_MIB}
    for (mib, way), one in sizes.items():
        subject, plain = f"copies of {mib} MiB timed by {way}", sizes.get((mib, "events"), {}).get("gb_s")
        if "why" in one:
            yield Difference(source=ran.name, subject=subject, seen=one["why"], expected="a time")
        elif plain and abs(median(one["gb_s"]) / median(plain) - 1) > SAME_TIME:
            seen, expected = f"{median(one['gb_s']):.1f} GB/s", f"{median(plain):.1f} GB/s as by events alone"
            yield Difference(source=ran.name, subject=subject, seen=seen, expected=expected)


def _report(ran: Ran) -> str:
    """The report of a program of gpucheck as JSON; of compute the last line, and there is none if it was cut."""
    if ran.name == COMPUTE:
        return (ran.output.splitlines() or [""])[-1]
    return ran.output if ran.name in VERIFY or ran.name.startswith(TRAIN) else ""


def _finding(ran: Ran, one: dict[str, Any]) -> Iterator[Difference]:
    if one["verdict"] not in FAULTLESS and not one.get("because_of"):
        seen = f"{one['verdict'].upper()} {one['seen'] or one['why']}"
        expected = str(one.get("wanted") or "")
        yield Difference(source=ran.name, subject=f"{one['check']}, {one['subject']}", seen=seen, expected=expected)


def _compute(ran: Ran) -> Iterator[Difference]:
    for gpu in _document(_report(ran)).get("gpus", ()):
        for type_, rate in gpu["gemm"].items():
            if (rate["of_ceiling"] or 0) > OF_CEILING:
                seen, expected = f"{rate['tflops']:.0f} TFLOP/s", f"at most {rate['ceiling_tflops']:.0f}"
                yield Difference(source="compute.yml", subject=f"{gpu['name']}, {type_}", seen=seen, expected=expected)


def _document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


READERS = {
    "every NVML call": _nvml_calls,
    "kernels and ways to time": _trial,
    COMPUTE: _compute,
}
