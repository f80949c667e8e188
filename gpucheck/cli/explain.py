"""Describe a cause, check, finding or Xid code, and the fix"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING

import click
import msgspec

from gpucheck.cli._shared.common import Problem, output_options, write_result
from gpucheck.cli._shared.completion import EXPLAINED
from gpucheck.cli._shared.width import columns, table
from gpucheck.knowledge.xid import CudaError, NvmlError, cuda_errors, nvml_errors
from gpucheck.printable import meant
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.cli.schema.documents import Listing
    from gpucheck.knowledge import Cause
    from gpucheck.knowledge.causes import Advice
    from gpucheck.knowledge.compute import Normal


# Columns without a terminal, and the fewest that are used of one.
WIDTH, LEAST = 100, 50
# 79, xid79, xid:79, "xid 79", cuda:802. A bare number of five digits is an SXid: Xids have three at most.
CODE = re.compile(r"(?P<kind>s?xid|nvml|cuda)?(?:[ _-]?error)?[: ]{0,2}(?P<code>[0-9]{1,9})")
SXID_DIGITS = 5
PREFIX = re.compile(r"(?:cuda|nvml)[: ]\s{0,3}")
LONGEST = 120  # characters of what was asked for that a message repeats
VERDICT = {
    "note": "nothing to do for the host",
    "pass": "nothing to do for the host",
    "unknown": "UNKNOWN: the error alone does not show a fault of the host",
}
DETAIL = {
    "recovery-action": "the line names the action: GPU or PF FLR reset, reboot, Drain P2P, Drain and Reset, IMEX",
    "nvlink5": "unit, sub-code and status of the line decide: gpucheck diagnose FILE",
}


@click.command()
@click.argument("what", nargs=-1, shell_complete=EXPLAINED, metavar="[CAUSE|CHECK|CODE]")
@click.option("--list", "listed", is_flag=True, help="List the steps of verify, and the causes.")
@output_options("text", "json")
def COMMAND(  # noqa: N802 - the name the command walk looks for
    what: tuple[str, ...], listed: bool, format_: str, output: Path | None
) -> None:
    """Describe a cause, a check, a code of an error, or the rates that are usual for a GPU.

    \b
    gpucheck explain acs-redirect
    gpucheck explain kernel-log
    gpucheck explain gpu.power-limit-lowered
    gpucheck explain xid:79
    gpucheck explain sxid:20034
    gpucheck explain nvml:15
    gpucheck explain cudaErrorSystemNotReady
    gpucheck explain normal:H100

    Without an argument: every step of verify with its level, its tags and what it asks.
    """
    if (listed or format_ == "json") and what:
        raise Problem("--list and --format json list everything. Omit the name, or the options.")
    if what:
        write_result("\n".join(_kind(" ".join(what))), output, mode=SHARED)
    elif format_ == "json":
        write_result(msgspec.json.format(msgspec.json.encode(_listing()), indent=2).decode(), output, mode=SHARED)
    else:
        from gpucheck.knowledge import causes
        from gpucheck.run.step import to_text
        from gpucheck.run.verification import all_steps

        text = to_text(all_steps())
        if listed:
            width = max(map(len, causes()))
            text += "".join(f"\n{name:<{width}}  cause  {cause.meaning}" for name, cause in causes().items())
        write_result(table(text, columns(output)), output, mode=SHARED)


def _listing() -> "Listing":
    from gpucheck.knowledge import causes
    from gpucheck.run.step import asks, level_of
    from gpucheck.run.verification import all_steps

    return {
        "schema": "gpucheck.listing/1",
        "steps": [
            {
                "name": step.name,
                "level": level_of(step),
                "tags": sorted(step.tags),
                "asks": asks(step.about),
                "typical_s": step.typical_s,
                "limit_s": step.seconds,
            }
            for step in all_steps()
        ],
        "causes": [{"name": name, "means": cause.meaning} for name, cause in causes().items()],
    }


def _kind(what: str) -> Iterator[str]:
    from gpucheck.knowledge import causes
    from gpucheck.knowledge.codes import known as is_code
    from gpucheck.knowledge.codes import rows

    name = what.lower().strip()
    kind, colon, _ = name.partition(":")
    code = CODE.fullmatch(name)
    if code is not None:
        return _numbered(code["kind"], int(code["code"]))
    if kind == "normal":
        return _normal(what.partition(":")[2].strip())
    checks, known = _checks(), causes()
    if name in known and name in checks:
        return iter([*_cause(name), "", *checks[name], *_declared(name)])
    if name in known:
        return _cause(name)
    if name in checks:
        return iter([*checks[name], *_declared(name)])
    if is_code(name):
        return _code(name)
    if (error := by_name(what)) is not None:
        return _explained(error)
    codes = [code for code, _ in rows()] if "." in name else []
    raise Problem(_unknown(what, [*known, *checks, *_error_names(), *codes], kind if colon else ""))


def _numbered(kind: str | None, code: int) -> Iterator[str]:
    """A code; a bare number is an Xid or, of five digits, an SXid."""
    from gpucheck.knowledge.xid import xids

    if kind in ("cuda", "nvml"):
        return _explained(_error(kind, code))
    if kind == "sxid" or (kind is None and code >= 10 ** (SXID_DIGITS - 1)):
        return _sxid(code)
    also = _others(code) if kind is None else []
    if not also:
        return _xid(code)
    if code not in xids():
        raise Problem(
            f"{code}: unknown Xid. Did you mean {' or '.join(also)}? Errors of CUDA and NVML need the prefix."
        )
    words = f"numbers of CUDA and NVML need a prefix: {', '.join(also)}"
    return iter([*_xid(code), *_part("also", words)])


def _unknown(what: str, names: list[str], prefix: str) -> str:
    """Why nothing is explained, and what may have been meant."""
    shown = what if len(what) <= LONGEST else f"{what[: LONGEST - 3]}..."
    hint = meant(what.lower(), names, most=3) if len(what) <= LONGEST else ""
    if prefix in ("xid", "sxid", "cuda", "nvml"):
        return f"{shown}: not in the table.{hint} Write a number: xid:79, sxid:20034, cuda:802 or nvml:15."
    return (
        f"{shown}: unknown cause, check or error code.{hint} List the checks: gpucheck explain. "
        "Codes: xid:79, sxid:20034, cuda:802, nvml:15. What a program printed is read by gpucheck diagnose."
    )


def _cause(name: str) -> Iterator[str]:
    from gpucheck.knowledge import causes

    cause = causes()[name]
    yield click.style(f"{name}  (cause)", bold=True)
    yield from _part("means", cause.meaning)
    yield from _part("confirm", cause.confirm)
    if cause.decide:
        yield f"  decide   {cause.decide}"
    yield from _steps(cause.steps) if cause.steps else _part("fix", "nothing to do")
    yield from _part("action", _action_text(cause))
    yield from _part("source", cause.source)


def _code(name: str) -> Iterator[str]:
    """What a finding with this code means; its values are in capitals."""
    from gpucheck.knowledge import causes
    from gpucheck.knowledge.codes import ANY, code_of, reporting

    row = code_of(name)
    yield click.style(f"{name}  (finding)", bold=True)
    yield from _part("means", _shown(row.why))
    if found := reporting(name):
        by = [f"{verdict.name} of {'any check' if check == ANY else check}" for check, verdict in found]
        yield from _part("verdict", ", ".join(by))
    follows = row.cause is not None and (row.then_cause or not row.steps)
    yield from _steps((*row.steps, *(causes()[row.cause].steps if row.cause and follows else ())))
    if row.cause:
        yield from _part("cause", f"{row.cause}, {row.confidence} (gpucheck explain {row.cause})")
    elif row.then_cause:
        yield from _part("then", "the steps of the cause that the finding names")


def _steps(steps: "Iterable[Advice]") -> Iterator[str]:
    """One step a line: words are wrapped, a command is not."""
    label = "fix"
    for step in steps:
        text = _shown(step.text)
        yield from [f"  {label:<8}   {text}"] if step.change or step.run else _part(label, f"- {text}")
        label = ""


def _shown(text: str) -> str:
    """A text of a table with the names of its values in capitals."""
    return "".join(plain + (name or "").upper() for plain, name, _, _ in Formatter().parse(text))


def _action_text(cause: "Cause") -> str:
    """The action and its owner, and what they mean to a scheduler."""
    from gpucheck.knowledge.causes import actions, of_host

    known, action = actions(), of_host(cause.action, cause.owner)
    others = f"Slurm: {known[action].slurm}; NVSentinel: {known[action].nvsentinel}"
    return f"{cause.action}: {known[cause.action].means} (owner: {cause.owner}; {others})"


def _checks() -> dict[str, list[str]]:
    """Return the description of every check: the steps of a run, and the comparisons of its report."""
    from gpucheck import comparison
    from gpucheck.run import verification as run

    # A step's own name is its own, also where findings of another step may have it.
    named = {name: step for step in run.all_steps() for name in step.also}
    named |= {step.name: step for step in run.all_steps()}
    found = {
        name: [
            *_check(step.name, step.about, step.tags, f"gpucheck verify --only {step.name} -v"),
            *_part("takes", f"{step.typical_s:g} s on a healthy host, {step.seconds:g} s at most"),
        ]
        for name, step in named.items()
    }
    for name, about in comparison.ABOUT.items():
        found[name] = list(_check(name, about, frozenset({"report"}), f"gpucheck verify {comparison.OPTION[name]} -v"))
    return found


def _declared(name: str) -> Iterator[str]:
    """What a check of a host may report, and what its verdicts depend on."""
    from gpucheck.checks import all_checks
    from gpucheck.knowledge.codes import causes_of, reported

    for verdict, codes in reported(name).items():
        yield from _part(verdict.name, ", ".join(codes))
    if causes := causes_of(name):
        yield from _part("causes", ", ".join(causes))
    if thresholds := [text for check in all_checks() if check.name == name for text in check.thresholds]:
        yield from _part("limits", "; ".join(thresholds))


def _check(name: str, about: str, tags: frozenset[str], command: str) -> Iterator[str]:
    question, _, rest = about.strip().partition("\n\n")
    yield click.style(f"{name}  (check: {', '.join(sorted(tags))})", bold=True)
    yield from _part("asks", question.partition(": ")[2] or question)
    yield from _part("decides", rest)
    yield from _part("run it", command)


def _xid(code: int) -> Iterator[str]:
    from gpucheck.knowledge.xid import xids

    row = xids().get(code)
    if row is None:
        raise Problem(f"xid:{code}: not in the table, which has the codes 1 to {max(xids())}.")
    yield click.style(f"Xid {code}", bold=True)
    yield from _part("means", row.reading)
    yield from _part("verdict", VERDICT.get(row.verdict, row.verdict.upper()))
    yield from _actions(row.immediate, row.later)
    if row.detail is not None:
        yield from _part("detail", DETAIL[row.detail])
    if row.cause:
        yield from _part("cause", f"{row.cause} (gpucheck explain {row.cause})")
    yield from _part("confirm", f"journalctl -k | grep 'NVRM: Xid' | grep ': {code},'")
    yield from _part("source", "NVIDIA's Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/")


def _sxid(code: int) -> Iterator[str]:
    from gpucheck.knowledge.xid import SXID_CAUSE, sxid_family, sxids

    row, family = sxids().get(code), sxid_family(code)
    if row is None and family is None:
        raise Problem(f"sxid:{code}: not in the table. The codes of NVSwitches have five digits, such as 20034.")
    yield click.style(f"SXid {code}", bold=True)
    yield from _part("means", row.reading if row else f"error of the {family}")
    yield from _part("verdict", _sxid_verdict(row.verdict if row else "warn"))
    if row is None:
        yield from _part("now", "look at the link that the line names")
    else:
        yield from _actions(row.immediate, row.later)
    cause = row.cause if row else SXID_CAUSE
    yield from _part("cause", f"{cause} (gpucheck explain {cause})")
    yield from _part("confirm", f"journalctl -k | grep SXid | grep ': {code},'")
    yield from _part("source", "NVIDIA Fabric Manager user guide, NVSwitch SXid errors")


def _error_names() -> list[str]:
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


def _others(code: int) -> list[str]:
    """Errors of CUDA and NVML with this number, as they are asked for."""
    found = []
    if (cuda := cuda_errors().get(code)) is not None:
        found.append(f"cuda:{code} ({cuda.name or cuda.driver})")
    if (nvml := nvml_errors().get(code)) is not None:
        found.append(f"nvml:{code} ({nvml.name})")
    return found


def _error(kind: str, code: int) -> CudaError | NvmlError:
    """The error of ``cuda`` or ``nvml`` with this number. Raises Problem."""
    row = cuda_errors().get(code) if kind == "cuda" else nvml_errors().get(code)
    if row is None:
        where = "https://docs.nvidia.com/cuda/cuda-runtime-api/" if kind == "cuda" else "nvml.h"
        raise Problem(f"{kind}:{code}: not in the table of errors. See: {where}")
    return row


def _explained(row: CudaError | NvmlError) -> Iterator[str]:
    """What an error means."""
    if isinstance(row, NvmlError):
        yield click.style(f"NVML error {row.code}  {row.name}", bold=True)
        yield from _part("text", row.text)
        yield from _part("means", row.means)
        yield from _evaluated(row.verdict, row.cause)
        yield from _part("source", "nvml.h, https://docs.nvidia.com/deploy/nvml-api/")
        return
    from gpucheck.knowledge.messages import meaning

    spoken = " / ".join(name for name in (row.name, row.driver) if name)
    yield click.style(f"CUDA error {row.code}  {spoken}", bold=True)
    yield from _part("text", row.text)
    known = meaning("cuda-error", f"{row.name or row.driver}: {row.text}")
    if known is None:
        yield from _part("verdict", "none: the program made a call that CUDA rejects; this is not a fault of the host")
    else:
        yield from _message(known[0].key)
    yield from _part("source", "CUDA runtime and driver API, error codes")


def _evaluated(verdict: str, cause: str | None) -> Iterator[str]:
    yield from _part("verdict", VERDICT.get(verdict, verdict.upper()))
    if cause:
        yield from _part("cause", f"{cause} (gpucheck explain {cause})")


def _message(key: str) -> Iterator[str]:
    from gpucheck.knowledge.messages import row

    known = row(key)
    yield from _part("means", known.says + (f"; {known.why}" if known.why else ""))
    yield from _evaluated(known.verdict, known.cause)
    for step in known.steps:
        yield from _part("fix", step.text)


def _actions(immediate: "Advice | None", later: "Advice | None") -> Iterator[str]:
    yield from _part("now", immediate.text if immediate else "none")
    if later:
        yield from _part("then", later.text)


def _sxid_verdict(verdict: str) -> str:
    shown = VERDICT.get(verdict, verdict.upper())
    return (
        f"{shown}, but WARN if the line contains Non-fatal"
        if verdict == "fail"
        else f"{shown}, but FAIL if the line contains Fatal"
    )


def _part(label: str, text: str) -> list[str]:
    words = " ".join(text.split())
    room = max(LEAST, columns() or WIDTH)
    return textwrap.wrap(
        words, room, initial_indent=f"  {label:<8} ", subsequent_indent=" " * 11, break_on_hyphens=False
    )


NORMAL = """\
What owners of machines published, GB/s. A copy is one direction, both ways is the sum; all_reduce is the bus
bandwidth of nccl-tests, large messages. One machine is an example, not a limit. What a healthy pair of your own
machine reaches, from its links: gpucheck topo, gpucheck verify. No source states usual training steps per second.
"""


def _normal(model: str) -> Iterator[str]:
    """The rows of a model, with their sources; all rows without a model. Raises Problem."""
    from gpucheck.knowledge.compute import normals
    from gpucheck.knowledge.gpus import find_gpu, gpus_of_family, similar_gpus

    rows = normals(model or None)
    if not rows:
        known = sorted({row.gpu for row in normals()})
        if find_gpu(model) or gpus_of_family(model):
            raise Problem(f"normal:{model}: no public measurement. There are some of: {', '.join(known)}.")
        hint = " or ".join(similar_gpus(model, 2))
        raise Problem(
            f"normal:{model}: unknown GPU model. {f'Did you mean {hint}?' if hint else 'See explain normal.'}"
        )
    yield NORMAL
    yield from _normal_table(rows)
    yield ""
    if model:
        yield "sources"
        yield from (f"  {source}" for source in dict.fromkeys(s for row in rows for s in row.sources))
    else:
        yield "Sources of one model: gpucheck explain normal:H100"


def _normal_table(rows: "tuple[Normal, ...]") -> Iterator[str]:
    cells = [("GPU", "path", "what", "GPUs", "GB/s", "machines")]
    cells += [(r.gpu, r.path, r.what, str(r.gpus), _range(r), str(len(r.sources))) for r in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        left = (f"{cell:<{width}}" for cell, width in zip(row[:3], widths, strict=False))
        right = (f"{cell:>{width}}" for cell, width in zip(row[3:], widths[3:], strict=True))
        yield "  ".join((*left, *right))


def _range(row: "Normal") -> str:
    low, high = (f"{value:.3g}" for value in row.gb_s)
    return low if low == high else f"{low} to {high}"
