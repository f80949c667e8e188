"""Say why bandwidth measured elsewhere is what it is: numbers or pasted tool output in, cause and remedy out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._common import Problem, output_options, write_result
from gpucheck.model.verdict import EXIT_STATUS, Verdict, worst

if TYPE_CHECKING:
    from gpucheck.model.diagnosis import Diagnosis
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
@click.option("--rules", is_flag=True, help="Print the rules, what each looks at and rests on, as Markdown.")
@click.option("--strict", is_flag=True, help="UNKNOWN outranks WARN: not knowing counts.")
@output_options("text", "json")
def COMMAND(  # noqa: N802 - the name the command walk looks for
    observations: str | None,
    topo: str | None,
    bandwidths: tuple[str, ...],
    collectives: tuple[str, ...],
    rules: bool,
    strict: bool,
    format_: str,
    output: Path | None,
) -> int:
    """Judge numbers that were measured elsewhere; no GPU is needed and none is looked at.

    \b
    gpucheck diagnose --observations machine.yml
    gpucheck diagnose --topo topo.txt --bandwidth p2p.txt --nccl all_reduce.txt

    Pasted output may add to --observations, which may hold what no tool prints (link widths, IOMMU, ACS).
    """
    if rules:
        from gpucheck.diagnose.page import rules_page

        write_result(rules_page(), output)
        return 0
    sources = tuple(name for name in (observations, topo, *bandwidths, *collectives) if name is not None)
    if not sources:
        raise Problem(
            "There is nothing to judge. Give --observations FILE, or pasted output with --topo and --bandwidth."
        )
    if sources.count("-") > 1:
        raise Problem("stdin can be read once only. Give the other inputs as files.")
    seen = _seen(observations, topo, bandwidths, collectives)
    diagnosis = _diagnosis(seen, tuple("stdin" if name == "-" else name for name in sources), strict)
    from gpucheck.render import diagnosis as render

    text = render.to_json(diagnosis) if format_ == "json" else render.to_text(diagnosis)
    write_result(text if output is None else click.unstyle(text), output)
    return EXIT_STATUS[diagnosis.verdict]


def _diagnosis(seen: "Observations", sources: tuple[str, ...], strict: bool) -> "Diagnosis":
    from gpucheck.diagnose import diagnose
    from gpucheck.model import TopologyGpu, named
    from gpucheck.model.diagnosis import Diagnosis

    # Where no bus id was given, the subject is GPU and its position.
    gpus = [TopologyGpu(index=i, pci_bus_id=gpu.bus_id or f"GPU{i}") for i, gpu in enumerate(seen.gpus)]
    findings = named(diagnose(seen), gpus)
    verdicts = [finding.verdict for finding in findings]
    return Diagnosis(
        verdict=worst(verdicts, strict=strict),
        source=sources,
        gpus=len(seen.gpus),
        findings=findings,
        counts={verdict.value: verdicts.count(verdict) for verdict in Verdict},
    )


def _seen(
    observations: str | None, topo: str | None, bandwidths: tuple[str, ...], collectives: tuple[str, ...]
) -> "Observations":
    """All inputs as one set of observations. Raises Problem for the first that cannot be read."""
    from gpucheck.model.observations import Observations

    seen = Observations()
    if observations is not None:
        from gpucheck.diagnose import MAX_BYTES, ObservationProblem, read

        try:
            seen = read(_bytes(observations, MAX_BYTES + 1))
        except ObservationProblem as problem:
            raise Problem(f"{_name(observations)}: {problem}") from problem
    if topo is None and not bandwidths and not collectives:
        return seen
    from gpucheck import imports
    from gpucheck.diagnose import together

    name = ""
    try:
        if topo is not None:
            name = topo
            seen = together(seen, imports.read(_bytes(name, imports.MAX_BYTES + 1)))
        for name in (*bandwidths, *collectives):
            seen = together(seen, imports.read_measured(_bytes(name, imports.MAX_BYTES + 1)))
    except ValueError as problem:
        raise Problem(f"{_name(name)}: {problem}") from problem
    return seen


def _name(source: str) -> str:
    return "stdin" if source == "-" else source


def _bytes(source: str, most: int) -> bytes:
    try:
        if source == "-":
            return sys.stdin.buffer.read(most)
        with Path(source).open("rb") as file:
            return file.read(most)
    except OSError as error:
        why = error.strerror or str(error)
        raise Problem(f"{source}: cannot be read: {why}. Give a file, or - for stdin.") from error
