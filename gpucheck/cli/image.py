"""Build and verify container images"""

import functools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gpucheck.cli._shared.common import (
    fail_on_option,
    level_option,
    output_options,
    simulation_options,
    timeout_option,
    usage_errors,
    write_result,
)
from gpucheck.cli._shared.completion import VARIANT
from gpucheck.cli._shared.shown import FORMATS, write_report
from gpucheck.cli._shared.width import columns, table
from gpucheck.model import NvmlReading, Verdict, named, worst
from gpucheck.model.finding import exit_status

if TYPE_CHECKING:
    from gpucheck.images.versions import Versions

SCHEMA = "gpucheck.image/1"
wrong_file = functools.partial(usage_errors, LookupError, ValueError)
index_option = click.option(
    "--index", "indexes", multiple=True, metavar="URL", help="Additional package index. Repeatable."
)
wheels_option = click.option("--find-links", multiple=True, metavar="DIR|URL", help="Directory of wheels. Repeatable.")
base_option = click.option("--base", metavar="IMAGE", help="Base image instead of the pinned one.")


@click.group(invoke_without_command=True)
@level_option(". quick: only what can change in a running container. full: also import the framework.")
@timeout_option()
@fail_on_option
@output_options(*FORMATS)
@simulation_options
@click.pass_context
def COMMAND(  # noqa: N802 - the name the command walk looks for
    ctx: click.Context,
    level: str,
    timeout: float,
    fail_on: str,
    format_: str,
    output: Path | None,
) -> int | None:
    """Verify this container image: declared and installed versions, GPU visibility.

    Run it in a container. Elsewhere it checks the current environment. The subcommands build images from a checkout.
    """
    if ctx.invoked_subcommand is not None:
        return None
    quick, full = level == "quick", level == "full"
    from gpucheck.host import live_source
    from gpucheck.images.judge import evaluate
    from gpucheck.images.probe import read
    from gpucheck.knowledge.causes import with_actions
    from gpucheck.printable import cleaned
    from gpucheck.render.blocks import Document, Findings
    from gpucheck.render.findings import worst_first

    started = time.monotonic()
    values = read(live_source(isolated=True, deadline_s=timeout), quick=quick, full=full)
    facts = values.facts
    findings = with_actions(named(evaluate(values, quick=quick), facts.gpus))
    verdict = worst(finding.verdict for finding in findings)
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "simulated": values.simulated,
        "image": msgspec.to_builtins(values.manifest) if isinstance(values.manifest, msgspec.Struct) else None,
        "purpose": _purpose(values.manifest),
        "frameworks": {wheel.name: wheel.version for wheel in values.wheels},
        "libraries": {part: library.version for part, library in values.own.libraries.items()},
        "driver": facts.nvml.driver_version if isinstance(facts.nvml, NvmlReading) else None,
        "gpus": len(facts.gpus),
        "shm_bytes": facts.limits.shm_bytes,
        "verdict": verdict,
        "counts": {v.value: sum(finding.verdict is v for finding in findings) for v in Verdict},
        "findings": findings,
        "seconds": round(time.monotonic() - started, 3),
    }

    def document() -> Document:
        shown = cleaned(report)
        image, lines = shown["image"], []
        if image:
            stand_in = " (substitute: no registry responded during the build)" if image["stand_in_base"] else ""
            lines = [f"on {image['base']}{stand_in}, Python {image['python']}", shown["purpose"]]
        return Document(
            command="image",
            host=image["variant"] if image else "not a gpucheck image",
            verdict=verdict,
            counts=shown["counts"],
            schema=SCHEMA,
            time=f"in {shown['seconds']:.1f} s",
            simulated="hardware" if values.simulated else None,
            lines=lines,
            findings=Findings(worst_first(shown["findings"]), check=False),
        )

    write_report(report, document, format_, output)
    return exit_status((finding.verdict for finding in findings), fail_on)


@COMMAND.result_callback()
def _status(result: int | None, **_options: Any) -> int:
    return result or 0


@COMMAND.command("list")
@output_options("text", "json")
def list_variants(format_: str, output: Path | None) -> None:
    """List image variants: versions, platforms, size."""
    from gpucheck.images import versions as page

    _, versions = _versions()
    if format_ == "json":
        write_result(msgspec.json.format(msgspec.json.encode(versions), indent=2).decode(), output)
    else:
        write_result(table(page.table(versions), columns(output)), output)


@COMMAND.command("build")
@click.argument("variants", nargs=-1, shell_complete=VARIANT, metavar="[VARIANT]...")
@base_option
@index_option
@wheels_option
@click.option("--fresh", is_flag=True, help="Rebuild with the current updates of the base's packages.")
def build_command(
    variants: tuple[str, ...], base: str | None, indexes: tuple[str, ...], find_links: tuple[str, ...], fresh: bool
) -> None:
    """Build image variants that have changed.

    Default: all variants.
    """
    from gpucheck.images.build import BuildOptions, build, index_options
    from gpucheck.lab.containers import engine_errors
    from gpucheck.lab.system import engine

    root, versions = _versions(variants)
    chosen = variants or tuple(versions.variants)
    options = BuildOptions(base=base, places=tuple(index_options(indexes, find_links)), fresh=fresh)
    client = engine()
    for name in chosen:
        with engine_errors(f"building {name}"):
            made = build(client, root, name, options)
        how = "built" if made.built else "unchanged"
        click.echo(f"{made.tag}  {made.size_bytes / 1e6:.0f} MB  {how}  SBOM {made.sbom}")


@COMMAND.command("context")
@click.argument("variant", shell_complete=VARIANT)
@base_option
def context_command(variant: str, base: str | None) -> None:
    """Write the build context of a variant.

    Prints the build command for any builder.
    """
    import shlex

    from gpucheck.images.build import ImagePlan, assemble, command_line
    from gpucheck.images.versions import Base

    root, versions = _versions([variant])
    chosen = versions.base if base is None else Base(name="custom", python=versions.base.python, image=base)
    plan = ImagePlan(root, versions.variant(variant), variant, chosen, chosen.image or "")
    assemble(plan)
    click.echo(shlex.join(command_line(plan, plan.arguments())))


def _purpose(manifest: Any) -> str | None:
    """What this image is for, None outside of one."""
    from gpucheck.images.probe import ImageManifest
    from gpucheck.images.versions import purpose

    if not isinstance(manifest, ImageManifest):
        return None
    return purpose(manifest.framework, manifest.code, manifest.driver_floor)


def _versions(variants: Iterable[str] = ()) -> "tuple[Path, Versions]":
    """Return the checkout and its versions file. Raises Problem for an unknown variant, or a file with a mistake."""
    from gpucheck.images.versions import read_versions
    from gpucheck.lab.model import checkout

    root = checkout()
    with wrong_file():
        versions = read_versions(root)
        for name in variants:
            versions.variant(name)
    return root, versions
