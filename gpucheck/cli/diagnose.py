"""Find causes in measurements or pasted tool output"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._shared.common import Problem, fail_on_option, note, output_options, write_result
from gpucheck.cli._shared.completion import GPU, KIND
from gpucheck.cli._shared.progress import steps
from gpucheck.cli._shared.shown import FORMATS, NO_REDACT, write_report
from gpucheck.foreign import read_bytes, shown, unpacked
from gpucheck.model.finding import exit_status
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.model.diagnosis import Diagnosis
    from gpucheck.model.diagnosis.observations import Observations
    from gpucheck.model.paste import Reading

TERMINAL = "terminal"


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...|-]")
@click.option(
    "--as",
    "as_",
    metavar="KIND",
    shell_complete=KIND,
    help="Do not detect the kind of the inputs: it is KIND. See --kinds.",
)
@click.option("--gpu", "model", metavar="MODEL", shell_complete=GPU, help="GPU model, if the inputs do not name it.")
@click.option("--machine", metavar="NAME", help="Only this host, if the inputs contain output of several.")
@click.option("--observations", metavar="FILE", help="Read observations and measurements (YAML or JSON). - is stdin.")
@click.option("--kinds", is_flag=True, help="List the supported kinds of output.")
@click.option("-v", "--verbose", count=True, help="Show all evidence.")
@fail_on_option
@output_options(*FORMATS)
@NO_REDACT
def COMMAND(  # noqa: N802 - the name the command walk looks for
    files: tuple[str, ...],
    as_: str | None,
    model: str | None,
    machine: str | None,
    observations: str | None,
    kinds: bool,
    verbose: int,
    fail_on: str,
    format_: str,
    output: Path | None,
    no_redact: bool,
) -> int:
    """Diagnose pasted tool output and measurements made elsewhere. No GPU needed.

    \b
    gpucheck diagnose issue.txt
    dmesg | gpucheck diagnose
    gpucheck diagnose topo.txt nccl.log --gpu H100
    gpucheck diagnose --observations machine.yml

    Supported: nvidia-smi, kernel logs, NCCL logs, benchmarks, lspci and more (--kinds). A file can contain the output
    of several tools in any order, with prompts, quotes and Markdown. Several hosts are distinguished by the names in
    it, and each is diagnosed. Input that is not recognized is listed with its line numbers.
    """
    if kinds:
        write_result(_kinds(), output, mode=SHARED)
        return 0
    if not files and observations is None and not is_terminal():
        files = ("-",)
    sources = tuple(name for name in (observations, *files) if name is not None)
    if not sources:
        raise Problem("no input. Give pasted output as FILE or on stdin, or --observations FILE.")
    if sources.count("-") > 1:
        raise Problem("stdin can be read once only. Give the other inputs as files.")
    from gpucheck.render.subjects.diagnosis import document, missing_output
    from gpucheck.run.pastes import NoSuchMachine, diagnosis

    if model is not None:
        _known(model)
    given = _given(observations)
    readings: list[Reading] = []

    def report() -> "Diagnosis":
        names = tuple(shown(name) for name in sources)
        try:
            found = diagnosis(readings, given, sources=names, model=model, machine=machine)
        except NoSuchMachine as problem:
            raise Problem(f"{problem}.") from problem
        write_report(
            found,
            lambda: document(found, everything=bool(verbose) or format_ == "html", published=format_ == "markdown"),
            format_,
            output,
            verbose=bool(verbose),
            redact=not no_redact,
        )
        return found

    with steps(len(files) - files.count("-") + 1) as progress:
        for name in files:
            if name != "-":  # on a terminal, input is being typed there
                progress(f"read {shown(name)}")
            readings.append(_reading(name, as_))
        progress("diagnose")
    found = report()
    if "-" not in sources and format_ == "text" and output is None and may_ask() and (command := missing_output(found)):
        pasted = _ask(command)
        if pasted is not None:
            readings.append(pasted)
            sources = (*sources, TERMINAL)
            found = report()
    machines = (one for machine in found.machines for one in machine.findings)
    return exit_status((one.verdict for one in (*found.findings, *machines)), fail_on)


def _known(model: str) -> None:
    """Raise Problem for a model that is not in the tables: it adds nothing to the inputs."""
    from gpucheck.knowledge import find_gpu, gpus_of_family, similar_gpus

    if find_gpu(model) is None and not gpus_of_family(model):
        hint = " or ".join(similar_gpus(model))
        raise Problem(f"--gpu {model}: unknown GPU model. {f'Did you mean {hint}?' if hint else 'Omit the option.'}")


def is_terminal() -> bool:
    """Whether stdin is a terminal, or closed: nothing was piped in."""
    return sys.stdin is None or sys.stdin.isatty()


def may_ask() -> bool:
    """Whether a person is at both ends: stdin, stdout and stderr are terminals."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _ask(command: str) -> "Reading | None":
    """Ask for the output of a command that decides. None if it is skipped, or if nothing in it is recognized."""
    from gpucheck import imports

    note(f"The output of this command decides: {command}")
    note("Paste it here, then press Ctrl-D; Enter skips:")
    try:
        first = sys.stdin.readline(imports.MAX_BYTES)
        text = first + sys.stdin.read(imports.MAX_BYTES) if first.strip() else ""
    except KeyboardInterrupt:
        text = ""
    if not text:
        return None
    try:
        return imports.read_all(text.encode("utf-8", errors="replace"), TERMINAL)
    except imports.ImportProblem as problem:
        note(f"gpucheck: {problem}")
        return None


def _kinds() -> str:
    """Every kind with what it is, one a line."""
    from gpucheck.imports import all_kinds
    from gpucheck.render.write import terminal

    titles: dict[str, list[str]] = {}
    for kind in all_kinds():
        titles.setdefault(kind.name, []).append(kind.title)
    return "\n".join(terminal.table(("", ""), [(name, "; ".join(titles[name])) for name in sorted(titles)])[1:])


def _given(observations: str | None) -> "Observations | None":
    """The user's own observations. Raises Problem."""
    if observations is None:
        return None
    from gpucheck.diagnose.document import MAX_BYTES, read
    from gpucheck.foreign.documents import DocumentProblem

    try:
        return read(read_bytes(observations, MAX_BYTES), shown(observations))
    except DocumentProblem as problem:
        raise Problem(str(problem)) from problem


def _reading(name: str, as_: str | None) -> "Reading":
    """Read one input. Raises Problem if nothing in it is recognized."""
    from gpucheck import imports

    advice = "Give a part of it: grep -E 'NVRM|nvidia|pcieport|AER|NCCL' FILE > part.txt"
    limit = imports.MAX_BYTES
    try:
        content = read_bytes(name, limit, shorten=advice)
        return imports.read_all(unpacked(content, limit, shown(name), advice), shown(name), as_)
    except imports.ImportProblem as problem:
        raise Problem(f"{shown(name)}: {problem}") from problem
