"""Show GPU topology and expected bandwidth per GPU pair"""

from pathlib import Path

import click
from msgspec.structs import replace

from gpucheck.cli._shared.common import (
    Problem,
    fail_on_option,
    open_host,
    output_options,
    recording_option,
    replay_mark,
    simulation_options,
    timeout_option,
)
from gpucheck.cli._shared.shown import FORMATS, write_report
from gpucheck.cli._shared.width import columns
from gpucheck.model.finding import Verdict, exit_status
from gpucheck.model.topology import Topology


@click.command()
@click.option("--import", "source", metavar="FILE", help="Read the output of another tool instead. - is stdin.")
@click.option("--best", type=click.IntRange(min=1), metavar="K", help="Select the best K GPUs of up to 16 for a job.")
@fail_on_option
@timeout_option()
@output_options(*FORMATS)
@recording_option
@simulation_options
def COMMAND(  # noqa: N802 - the name the command walk looks for
    source: str | None,
    best: int | None,
    fail_on: str,
    timeout: float,
    format_: str,
    output: Path | None,
    recording: Path | None,
) -> int:
    """Show the GPU topology matrix of this host, a simulated machine, a recording or pasted output.

    The path classes are those of nvidia-smi topo -m. NVML and sysfs are read independently; a mismatch is a finding,
    and so is a GPU, link or network card that is missing, slow or down.
    """
    if source is not None and (recording is not None or click.get_current_context().params["profile"] is not None):
        raise Problem("--import cannot be combined with --simulate, --fault or --from.")
    mark = ""
    if source is None:
        host = open_host(recording, deadline_s=timeout, health=False)
        from gpucheck.render.words import describe_simulation
        from gpucheck.run.topology import examine

        topology, about = examine(host), describe_simulation(host.read("simulation").simulation)
        mark = replay_mark(host)
    else:
        topology, about = _imported(source), ""
    from gpucheck.run.conclusion import conclude

    findings = conclude(topology.findings, topology.gpus, topology.wiring).findings
    topology = _advised(replace(topology, findings=findings), best)
    from gpucheck.render.subjects.topology import document

    write_report(
        topology,
        lambda: document(
            topology, about=about, width=columns(output), best=best is not None, whole=format_ != "text"
        )._replace(recorded=mark.strip()),
        format_,
        output,
    )
    verdicts = [finding.verdict for finding in topology.findings if finding.verdict is not Verdict.SKIP]
    return exit_status(verdicts, fail_on) if verdicts else 0


def _advised(topology: Topology, best: int | None) -> Topology:
    from gpucheck.topology import with_advice

    if not topology.gpus:
        return topology
    try:
        return with_advice(topology, best)
    except ValueError as error:
        raise Problem(f"--best: {error}") from error


def _imported(source: str) -> Topology:
    from gpucheck import imports
    from gpucheck.foreign import read_bytes, shown
    from gpucheck.topology import infer_wiring, with_expectations

    advice = "Give a file with nvidia-smi topo -m output or NCCL topology XML"
    content = read_bytes(source, imports.MAX_BYTES, advice)
    try:
        return with_expectations(infer_wiring(imports.read(content)))
    except imports.ImportProblem as problem:
        raise Problem(f"{shown(source)}: {problem}") from problem
