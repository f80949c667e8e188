"""Train a small network on two ranks, and prove that they agree with each other and with one process."""

import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
import msgspec

from gpucheck.cli._common import output_options, write_result
from gpucheck.model import EXIT_STATUS, Finding, Verdict, worst
from gpucheck.train.outcome import SmokeFailure, SmokeResult
from gpucheck.train.spec import MIN_STEPS, SmokeOptions

SCHEMA = "gpucheck.smoke/1"
DEFAULTS = SmokeOptions()
PHASES = (
    "import",
    "device",
    "connect",
    "broadcast",
    "load",
    "forward",
    "backward",
    "allreduce",
    "optimizer",
    "check",
    "reference",
)


@click.command()
@click.option("--framework", type=click.Choice(["torch"]), default="torch", show_default=True)
@click.option(
    "--strategy",
    type=click.Choice(["ddp"]),
    default="ddp",
    show_default=True,
    help="ddp: torch DistributedDataParallel, one process a rank.",
)
@click.option(
    "--steps", type=click.IntRange(min=MIN_STEPS), default=DEFAULTS.steps, show_default=True, help="Optimizer steps."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULTS.timeout_s,
    show_default=True,
    help="Seconds for the whole run; then the ranks are ended and the one that hangs is named.",
)
@output_options("text", "json")
def COMMAND(  # noqa: N802 - the name the command walk looks for
    framework: str, strategy: str, steps: int, timeout: float, format_: str, output: Path | None
) -> int:
    """Train a small network on two ranks and prove that the ranks agree with each other and with one process.

    Two GPUs train with NCCL, two ranks share one GPU with gloo, and without a GPU two CPU ranks train with gloo; the
    report says which. Nothing is downloaded: the data is made on the fly.
    """
    from gpucheck.host import live_host
    from gpucheck.train import judge, real_gpus, run_smoke

    host = live_host(isolated=True, deadline_s=timeout)
    options = SmokeOptions(framework=framework, strategy=strategy, steps=steps, timeout_s=timeout)  # type: ignore[arg-type]
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    if sys.stderr.isatty():
        click.echo(f"gpucheck: training {steps} steps on {options.world_size} ranks ...", err=True)
    outcome = run_smoke(options)
    findings = judge(outcome, gpus=real_gpus(host))
    simulation = host.simulation()
    verdict = worst(finding.verdict for finding in findings)
    report = {
        "schema": SCHEMA,
        "host": host.system().hostname,
        "simulated": simulation is not None,
        "simulation": simulation,
        "started": started,
        "verdict": verdict,
        "counts": {v.value: sum(finding.verdict is v for finding in findings) for v in Verdict},
        "findings": findings,
        "outcome": outcome,
    }
    text = _json(report) if format_ == "json" else "\n".join(_text(report, outcome, findings, verdict)) + "\n"
    write_result(text if output is None else click.unstyle(text), output)
    return EXIT_STATUS[verdict]


def _json(report: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def _text(
    report: dict[str, Any], outcome: SmokeResult | SmokeFailure, findings: tuple[Finding, ...], verdict: Verdict
) -> Iterator[str]:
    from gpucheck.render.words import counts_line, printable, simulated_mark, verdict_word

    mark = f"  {simulated_mark('hardware; the training itself is real')}" if report["simulated"] else ""
    title = f"gpucheck smoke  {printable(report['host'])}  {outcome.framework} {outcome.strategy}"
    yield click.style(title, bold=True) + mark
    if isinstance(outcome, SmokeResult):
        yield from map(printable, _run_in_words(outcome))
    yield ""
    for finding in findings:
        yield from _finding_in_words(finding)
    yield ""
    seconds = outcome.seconds["total"] if isinstance(outcome, SmokeResult) else outcome.seconds
    yield f"{verdict_word(verdict, 0)}  {counts_line(report['counts'])}  in {seconds:.1f} s{mark}"


def _run_in_words(result: SmokeResult) -> Iterator[str]:
    from gpucheck.train.judge import ranks_in_words

    yield f"{ranks_in_words(result)}: {result.placement_reason}"
    names = [name for name in dict.fromkeys(result.device_names) if name]
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items() if version)
    work = f"{result.model}, {result.steps} steps of {result.batch_per_rank} samples a rank"
    yield f"{', '.join([*names, versions])}; {work}"
    yield "samples/s: " + ", ".join(f"rank {i} {rate:.0f}" for i, rate in enumerate(result.samples_per_s))
    yield "seconds: " + ", ".join(f"{phase} {result.seconds.get(phase, 0.0):.2f}" for phase in PHASES)


def _finding_in_words(finding: Finding) -> Iterator[str]:
    from gpucheck.render.words import printable, value, verdict_word

    wanted = f", wanted {value(finding, finding.wanted)}" if finding.wanted is not None else ""
    subject = f"{finding.subject}: " if finding.subject != "host" else ""
    yield f"{verdict_word(finding.verdict)} " + printable(f"{subject}{value(finding, finding.seen)}{wanted}")
    if finding.verdict is not Verdict.PASS:
        yield f"        why    {printable(finding.why)}"
    if finding.fix:
        yield f"        do     {printable(finding.fix)}"
    if finding.cause:
        yield f"        cause  {finding.cause} ({finding.confidence or 'possible'})"
    if finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        for line in finding.evidence:
            yield f"        saw    {printable(line)}"
