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
from gpucheck.knowledge import causes, find_gpu, gpus_of_family, similar_gpus
from gpucheck.knowledge.causes import Advice, actions, of_host
from gpucheck.knowledge.codes import ANY, causes_of, code_of, known, reported, reporting, rows
from gpucheck.knowledge.compute import normals
from gpucheck.knowledge.xid import (
    SXID_CAUSE,
    CudaError,
    NvmlError,
    cuda_errors,
    nvml_errors,
    sxid_family,
    sxids,
    xids,
)
from gpucheck.printable import meant
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.cli.schema import Listing

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
NORMAL = """\
What owners of machines published, GB/s. A copy is one direction, both ways is the sum; all_reduce is the bus
bandwidth of nccl-tests, large messages. One machine is an example, not a limit. What a healthy pair of your own
machine reaches, from its links: gpucheck topo, gpucheck verify. No source states usual training steps per second.

"""
# Title and parts: a label with a text or a step. A part without either is left out.
Page = tuple[str, list[tuple[str, str | Advice | None]]]


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
        name = " ".join(what)
        kind, _, model = name.partition(":")
        is_normal = kind.lower().strip() == "normal"
        text = _normal(model.strip()) if is_normal else "\n\n".join(map(_printed, _pages(name)))
    elif format_ == "json":
        text = msgspec.json.format(msgspec.json.encode(_listing()), indent=2).decode()
    else:
        text = table(_list(with_causes=listed), columns(output))
    write_result(text, output, mode=SHARED)


def _printed(page: Page) -> str:
    """Words are wrapped. A command is not, and is indented more."""
    title, parts = page
    room, lines = max(LEAST, columns() or WIDTH), [click.style(title, bold=True)]
    for label, part in parts:
        text = _values_in_capitals(part.text) if isinstance(part, Advice) else part or ""
        if isinstance(part, Advice) and (part.change or part.run):
            lines.append(f"  {label:<8}   {text}")
            continue
        words = " ".join(f"- {text}".split()) if isinstance(part, Advice) else " ".join(text.split())
        begin = f"  {label:<8} "
        lines += textwrap.wrap(
            words, room, initial_indent=begin, subsequent_indent=" " * len(begin), break_on_hyphens=False
        )
    return "\n".join(lines)


def _values_in_capitals(text: str) -> str:
    return "".join(plain + (name or "").upper() for plain, name, _, _ in Formatter().parse(text))


def _list(*, with_causes: bool) -> str:
    from gpucheck.render.write import terminal
    from gpucheck.run.step import LEVELS, asks, level_of
    from gpucheck.run.verification import all_steps

    steps = [(one.name, level_of(one), " ".join(sorted(one.tags - {*LEVELS})), asks(one.about)) for one in all_steps()]
    lines = terminal.table(("step", "level", "tags", "asks"), steps)
    found = [(name, "cause", cause.meaning) for name, cause in causes().items()]
    return "\n".join([*lines, *(terminal.table(("", "", ""), found)[1:] if with_causes else ())])


def _listing() -> "Listing":
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


def _pages(what: str) -> list[Page]:
    """What is known by this name; a cause and a check may share one. Raises Problem."""
    name = what.lower().strip()
    if code := CODE.fullmatch(name):
        return [_numbered(code["kind"], int(code["code"]))]
    checks = _checks()
    found = [_cause(name)] if name in causes() else []
    if name in checks:
        title, parts = checks[name]
        found.append((title, [*parts, *_declared(name)]))
    if found:
        return found
    if known(name):
        return [_code(name)]
    if (error := by_name(what)) is not None:
        return [_error(error)]
    kind, colon, _ = name.partition(":")
    errors = [one for row in cuda_errors().values() for one in (row.name, row.driver) if one]
    errors += [row.name for row in nvml_errors().values()]
    codes = [code for code, _ in rows()] if "." in name else []
    raise Problem(_unknown(what, [*causes(), *checks, *errors, *codes], kind if colon else ""))


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


def _numbered(kind: str | None, code: int) -> Page:
    """A code; a bare number is an Xid or, of five digits, an SXid. Raises Problem."""
    cuda, nvml = cuda_errors().get(code), nvml_errors().get(code)
    if kind in ("cuda", "nvml"):
        error = cuda if kind == "cuda" else nvml
        if error is None:
            where = "https://docs.nvidia.com/cuda/cuda-runtime-api/" if kind == "cuda" else "nvml.h"
            raise Problem(f"{kind}:{code}: not in the table of errors. See: {where}")
        return _error(error)
    if kind == "sxid" or (kind is None and code >= 10 ** (SXID_DIGITS - 1)):
        return _sxid(code)
    also = [f"cuda:{code} ({cuda.name or cuda.driver})"] if cuda else []
    also += [f"nvml:{code} ({nvml.name})"] if nvml else []
    if kind is not None or not also:
        return _xid(code)
    if code not in xids():
        raise Problem(
            f"{code}: unknown Xid. Did you mean {' or '.join(also)}? Errors of CUDA and NVML need the prefix."
        )
    title, parts = _xid(code)
    return title, [*parts, ("also", f"numbers of CUDA and NVML need a prefix: {', '.join(also)}")]


def _cause(name: str) -> Page:
    cause = causes()[name]
    action = actions()[of_host(cause.action, cause.owner)]
    others = f"Slurm: {action.slurm}; NVSentinel: {action.nvsentinel}"
    return f"{name}  (cause)", [
        ("means", cause.meaning),
        ("confirm", cause.confirm),
        ("decide", Advice(run=cause.decide) if cause.decide else None),
        *(_steps(cause.steps) or [("fix", "nothing to do")]),
        ("action", f"{cause.action}: {actions()[cause.action].means} (owner: {cause.owner}; {others})"),
        ("source", cause.source),
    ]


def _steps(steps: Iterable[Advice]) -> list[tuple[str, str | Advice | None]]:
    return [("" if number else "fix", step) for number, step in enumerate(steps)]


def _code(name: str) -> Page:
    """What a finding with this code means; its values are in capitals."""
    row = code_of(name)
    by = [f"{verdict.name} of {'any check' if check == ANY else check}" for check, verdict in reporting(name)]
    follows = causes()[row.cause].steps if row.cause and (row.then_cause or not row.steps) else ()
    then = "the steps of the cause that the finding names" if row.then_cause and not row.cause else ""
    cause = f"{row.cause}, {row.confidence} (gpucheck explain {row.cause})" if row.cause else ""
    return f"{name}  (finding)", [
        ("means", _values_in_capitals(row.why)),
        ("verdict", ", ".join(by)),
        *_steps((*row.steps, *follows)),
        ("cause", cause),
        ("then", then),
    ]


def _checks() -> dict[str, Page]:
    """Every check: the steps of a run, and the comparisons of its report."""
    from gpucheck import comparison
    from gpucheck.checks import checks_of
    from gpucheck.run import verification as run

    # A step's own name is its own, also where findings of another step may have it.
    named = {name: step for step in run.all_steps() for name in step.also}
    named |= {step.name: step for step in run.all_steps()}
    of_steps = {check.name: check.about for check in checks_of("measure")}
    # That of NCCL through each card is run by a command of its own only, which its text names.
    found = {name: _check(name, about, frozenset({"measure"}), None) for name, about in of_steps.items()}
    for name, step in named.items():
        shown = name if name in of_steps else step.name
        about = step.about if shown == step.name else of_steps[name]
        title, parts = _check(shown, about, step.tags, f"--only {step.name}")
        takes = f"{step.typical_s:g} s on a healthy host, {step.seconds:g} s at most"
        found[name] = title, [*parts, ("takes", takes)]
    for name, about in comparison.ABOUT.items():
        found[name] = _check(name, about, frozenset({"report"}), comparison.OPTION[name])
    return found


def _check(name: str, about: str, tags: frozenset[str], option: str | None) -> Page:
    question, _, rest = about.strip().partition("\n\n")
    asks = question.partition(": ")[2] or question
    parts = (("asks", asks), ("decides", rest), ("run it", option and f"gpucheck verify {option} -v"))
    return f"{name}  (check: {', '.join(sorted(tags))})", [*parts]


def _declared(name: str) -> Iterator[tuple[str, str]]:
    """What a check of a host may report, and what its verdicts depend on."""
    from gpucheck.checks import all_checks

    yield from ((verdict.name, ", ".join(codes)) for verdict, codes in reported(name).items())
    yield "causes", ", ".join(causes_of(name))
    yield "limits", "; ".join(text for check in all_checks() if check.name == name for text in check.thresholds)


def _xid(code: int) -> Page:
    row = xids().get(code)
    if row is None:
        raise Problem(f"xid:{code}: not in the table, which has the codes 1 to {max(xids())}.")
    return f"Xid {code}", [
        ("means", row.reading),
        ("verdict", _verdict(row.verdict)),
        ("now", row.immediate.text if row.immediate else "none"),
        ("then", row.later and row.later.text),
        ("detail", DETAIL[row.detail] if row.detail else ""),
        ("cause", _named(row.cause)),
        ("confirm", f"journalctl -k | grep 'NVRM: Xid' | grep ': {code},'"),
        ("source", "NVIDIA's Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/"),
    ]


def _sxid(code: int) -> Page:
    row, family = sxids().get(code), sxid_family(code)
    if row is None and family is None:
        raise Problem(f"sxid:{code}: not in the table. The codes of NVSwitches have five digits, such as 20034.")
    verdict = row.verdict if row else "warn"
    but = "WARN if the line contains Non-fatal" if verdict == "fail" else "FAIL if the line contains Fatal"
    now = (row.immediate.text if row.immediate else "none") if row else "look at the link that the line names"
    return f"SXid {code}", [
        ("means", row.reading if row else f"error of the {family}"),
        ("verdict", f"{_verdict(verdict)}, but {but}"),
        ("now", now),
        ("then", row.later.text if row and row.later else ""),
        ("cause", _named(row.cause if row else SXID_CAUSE)),
        ("confirm", f"journalctl -k | grep SXid | grep ': {code},'"),
        ("source", "NVIDIA Fabric Manager user guide, NVSwitch SXid errors"),
    ]


def _verdict(verdict: str) -> str:
    return VERDICT.get(verdict, verdict.upper())


def _named(cause: str | None) -> str:
    return f"{cause} (gpucheck explain {cause})" if cause else ""


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


def _error(row: CudaError | NvmlError) -> Page:
    """What an error means."""
    if isinstance(row, NvmlError):
        return f"NVML error {row.code}  {row.name}", [
            ("text", row.text),
            ("means", row.means),
            ("verdict", _verdict(row.verdict)),
            ("cause", _named(row.cause)),
            ("source", "nvml.h, https://docs.nvidia.com/deploy/nvml-api/"),
        ]
    from gpucheck.knowledge.messages import meaning

    found = meaning("cuda-error", f"{row.name or row.driver}: {row.text}")
    parts = [("verdict", "none: the program made a call that CUDA rejects; this is not a fault of the host")]
    steps: tuple[Advice, ...] = ()
    if found is not None:
        message, steps = found[0], found[0].steps
        parts = [("means", "; ".join(filter(None, (message.says, message.why))))]
        parts += [("verdict", _verdict(message.verdict)), ("cause", _named(message.cause))]
    title = f"CUDA error {row.code}  {' / '.join(name for name in (row.name, row.driver) if name)}"
    source = "CUDA runtime and driver API, error codes"
    return title, [("text", row.text), *parts, *_steps(steps), ("source", source)]


def _normal(model: str) -> str:
    """The rows of a model, with their sources; all rows without a model. Raises Problem."""
    from gpucheck.render.write import terminal

    found = normals(model or None)
    if not found:
        if find_gpu(model) or gpus_of_family(model):
            some = ", ".join(sorted({row.gpu for row in normals()}))
            raise Problem(f"normal:{model}: no public measurement. There are some of: {some}.")
        hint = " or ".join(similar_gpus(model, 2))
        raise Problem(
            f"normal:{model}: unknown GPU model. {f'Did you mean {hint}?' if hint else 'See explain normal.'}"
        )
    ends = [" to ".join(dict.fromkeys(f"{value:.3g}" for value in row.gb_s)) for row in found]
    cells = [
        (row.gpu, row.path, row.what, str(row.gpus), end, str(len(row.sources)))
        for row, end in zip(found, ends, strict=True)
    ]
    lines = terminal.table(("GPU", "path", "what", "GPUs", "GB/s", "machines"), cells)
    if not model:
        return NORMAL + "\n".join([*lines, "", "Sources of one model: gpucheck explain normal:H100"])
    sources = dict.fromkeys(f"  {source}" for row in found for source in row.sources)
    return NORMAL + "\n".join([*lines, "", "sources", *sources])
