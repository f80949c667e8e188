"""Say why bandwidth measured elsewhere is what it is: numbers or pasted tool output in, cause and remedy out."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._common import Problem, output_options, write_result
from gpucheck.foreign import read_bytes, shown
from gpucheck.model.verdict import EXIT_STATUS, Verdict, worst
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.model.diagnosis import Diagnosis
    from gpucheck.model.finding import Finding
    from gpucheck.model.observations import Observations


@click.command()
@click.option("--observations", metavar="FILE", help="What was seen and measured, as YAML or JSON; - is stdin.")
@click.option("--topo", metavar="FILE", help="Pasted nvidia-smi topo -m; - is stdin.")
@click.option(
    "--bandwidth",
    "bandwidths",
    metavar="FILE",
    multiple=True,
    help="Pasted p2pBandwidthLatencyTest or nvbandwidth output (text or JSON). Repeatable; - is stdin.",
)
@click.option("--nccl", "collectives", metavar="FILE", multiple=True, help="Pasted nccl-tests output. Repeatable.")
@click.option(
    "--kernel-log",
    "logs",
    metavar="FILE",
    multiple=True,
    help="Pasted dmesg, journalctl -k or syslog, in any of their forms. Repeatable; - is stdin.",
)
@click.option(
    "--hypotheses", is_flag=True, help="Print what a diagnosis weighs, and what each hypothesis predicts, as Markdown."
)
@click.option("--rules", is_flag=True, hidden=True, help="The former name of --hypotheses.")
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="Add all evidence, the explanations by probability, and what the first two predicted; -vv: what all did.",
)
@click.option("--strict", is_flag=True, help="UNKNOWN outranks WARN: not knowing counts.")
@output_options("text", "json", "html", "markdown")
def COMMAND(  # noqa: N802 - the name the command walk looks for
    observations: str | None,
    topo: str | None,
    bandwidths: tuple[str, ...],
    collectives: tuple[str, ...],
    logs: tuple[str, ...],
    hypotheses: bool,
    rules: bool,
    verbose: int,
    strict: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Judge numbers that were measured elsewhere; no GPU is needed and none is looked at.

    \b
    gpucheck diagnose --observations machine.yml
    gpucheck diagnose --topo topo.txt --bandwidth p2p.txt --nccl all_reduce.txt
    dmesg | gpucheck diagnose --kernel-log -

    Pasted output may add to --observations, which may hold what no tool prints (link widths, IOMMU, ACS).
    """
    if hypotheses or rules:
        from gpucheck.diagnose.page import hypotheses_page

        write_result(hypotheses_page(), output, mode=SHARED)
        return 0
    sources = tuple(name for name in (observations, topo, *bandwidths, *collectives, *logs) if name is not None)
    if not sources:
        raise Problem(
            "There is nothing to judge. Give --observations FILE, or pasted output with --topo, --bandwidth or "
            "--kernel-log."
        )
    if sources.count("-") > 1:
        raise Problem("stdin can be read once only. Give the other inputs as files.")
    of_logs, gpus_named = _of_logs(logs)
    seen = _seen(observations, topo, bandwidths, collectives) if len(sources) > len(logs) else None
    diagnosis = _diagnosis(seen, of_logs, gpus_named, tuple(shown(name) for name in sources), strict)
    write_result(_rendered(diagnosis, format_, verbose, plain=output is not None), output)
    return EXIT_STATUS[diagnosis.verdict]


def _rendered(diagnosis: "Diagnosis", format_: str, verbose: int, *, plain: bool) -> str:
    from gpucheck.render import diagnosis as render

    if format_ == "text":
        text = render.to_text(diagnosis, verbose=verbose)
        return click.unstyle(text) if plain else text
    writers = {"json": render.to_json, "html": render.to_html, "markdown": render.to_markdown}
    return writers[format_](diagnosis)


def _diagnosis(
    seen: "Observations | None",
    of_logs: tuple["Finding", ...],
    gpus_named: int,
    sources: tuple[str, ...],
    strict: bool,
) -> "Diagnosis":
    """seen: None if only logs were given: there are no numbers to judge."""
    from gpucheck.diagnose import judge
    from gpucheck.model import TopologyGpu, named
    from gpucheck.model.diagnosis import Diagnosis
    from gpucheck.model.ranking import Judgement

    # Where no bus id was given, the subject is GPU and its position.
    gpus = seen.gpus if seen is not None else ()
    listed = [TopologyGpu(index=i, pci_bus_id=gpu.bus_id or f"GPU{i}") for i, gpu in enumerate(gpus)]
    judgement = judge(seen) if seen is not None else Judgement(findings=())
    findings = (*named(judgement.findings, listed), *of_logs)
    verdicts = [finding.verdict for finding in findings]
    return Diagnosis(
        verdict=worst(verdicts, strict=strict),
        source=sources,
        gpus=max(len(seen.gpus) if seen is not None else 0, gpus_named),
        findings=findings,
        counts={verdict.value: verdicts.count(verdict) for verdict in Verdict},
        ranking=judgement.ranking,
        gpu_names=judgement.gpus,
        decided=judgement.decided,
    )


def _of_logs(logs: tuple[str, ...]) -> tuple[tuple["Finding", ...], int]:
    """What the kernel logs say, and how many GPUs they name. Raises Problem (exit 64) for what is no kernel log."""
    if not logs:
        return (), 0
    from gpucheck.checks import kernel_log
    from gpucheck.imports import MAX_BYTES, ImportProblem
    from gpucheck.imports.kernel_log import read

    findings: list[Finding] = []
    gpus: set[str] = set()
    for name in logs:
        content = read_bytes(name, MAX_BYTES, "Give a part of it: grep -E 'NVRM|nvidia|pcieport|AER' FILE > kernel.txt")
        try:
            log = read(content)
        except ImportProblem as problem:
            raise Problem(f"{shown(name)}: {problem}") from problem
        findings += kernel_log.evaluate(kernel_log.Values(log=log))
        gpus |= kernel_log.gpus_named(log)
    return tuple(findings), len(gpus)


def _seen(
    observations: str | None, topo: str | None, bandwidths: tuple[str, ...], collectives: tuple[str, ...]
) -> "Observations":
    """All inputs as one set of observations. Raises Problem for the first that cannot be read."""
    from gpucheck.diagnose import ObservationProblem
    from gpucheck.model.observations import Observations

    seen = Observations()
    if observations is not None:
        from gpucheck.diagnose import MAX_BYTES, read

        content = read_bytes(observations, MAX_BYTES)
        try:
            seen = read(content)
        except ObservationProblem as problem:
            raise Problem(f"{shown(observations)}: {problem}") from problem
    if topo is None and not bandwidths and not collectives:
        return seen
    from gpucheck import imports
    from gpucheck.diagnose import together

    for name in (topo, *bandwidths, *collectives):
        if name is None:
            continue
        content = read_bytes(name, imports.MAX_BYTES)
        try:
            found = imports.read(content) if name is topo else imports.read_measured(content)
            seen = together(seen, found)
        except (imports.ImportProblem, ObservationProblem) as problem:
            raise Problem(f"{shown(name)}: {problem}") from problem
    return seen
