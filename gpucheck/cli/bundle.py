"""Create and verify offline installation bundles"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._shared.common import DIRECTORY, Problem, format_option, note, output_options, several, write_result
from gpucheck.cli.stack.common import EXIT_IMPOSSIBLE, ExistingFile, as_json, bundled, knowledge_option, lock_option
from gpucheck.processes.atomic import SHARED

if TYPE_CHECKING:
    from gpucheck.bundle.contents import Manifest


@click.group("bundle")
@knowledge_option
def COMMAND() -> None:  # noqa: N802 - the name every command module has
    """Create and verify bundles. make bundle and make provision BUNDLE=... run these commands.

    Exit status: 0 valid, 2 a bundle differs from what was signed, 3 it cannot be read or made, 64 wrong usage.
    """


fingerprint_option = click.option(
    "--fingerprint", default="", metavar="HEX", help="Fingerprint of the required signing key."
)


@COMMAND.command("verify")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@fingerprint_option
@output_options("text", "json")
def verify_command(folder: Path, fingerprint: str, format_: str, output: Path | None) -> None:
    """Verify the signature and all files of a bundle."""
    from gpucheck.bundle.folder import verify

    _echo(bundled(lambda: verify(folder, fingerprint).manifest), format_, output)


@COMMAND.command("files")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@fingerprint_option
@click.option("--accept-older", is_flag=True, help="Accept a bundle that was made before the last one.")
@format_option("text", "json")
@click.option("-o", "--output", type=DIRECTORY, required=True, help="Directory for the copy and the lists.")
def files_command(folder: Path, fingerprint: str, accept_older: bool, format_: str, output: Path) -> None:
    """Copy a bundle while verifying it, and list its files.

    GROUP.json has one entry per file: path on the host, digest, size in bytes, path of the verified copy.
    """
    from gpucheck.bundle.folder import take

    _echo(bundled(lambda: take(folder, output, fingerprint, accept_older=accept_older)), format_)


def _echo(manifest: "Manifest", format_: str, output: Path | None = None) -> None:
    from gpucheck.bundle.contents import manifest_text

    if format_ == "json":
        # The files are for comparing, and they are thousands.
        shown = {key: value for key, value in json.loads(as_json(manifest)).items() if key != "files"}
        shown["schema"] = "gpucheck.bundle-summary/1"
        shown["bytes"] = sum(file.bytes for file in manifest.files.values())
        write_result(json.dumps(shown, indent=2), output)
    else:
        write_result(manifest_text(manifest), output)


@COMMAND.command("order")
@lock_option
@several("--group", "PATTERN,...", "Include only these groups of the lock, for example rocky-*. Repeatable.")
@click.option(
    "--facts", multiple=True, type=ExistingFile, help="Facts of a host that can collect packages. Repeatable."
)
@click.option(
    "--target", type=click.Path(path_type=Path), metavar="DIR", help="Target bundle. Validated before any download."
)
@click.option("-o", "--output", type=DIRECTORY, required=True, help="Directory for GROUP.json and GROUP.plan.")
def order_command(
    lock_file: Path, group: tuple[str, ...], facts: tuple[Path, ...], target: Path | None, output: Path
) -> None:
    """Write the packages to collect and the collecting hosts."""
    from gpucheck.bundle import contents
    from gpucheck.bundle.making import refuse_other_folder
    from gpucheck.stack import Refusal
    from gpucheck.stack.facts import read_files
    from gpucheck.stack.lock import read_lock_file
    from gpucheck.stack.plan import Plan, plan

    def work() -> list[tuple[contents.Order, Plan]]:
        if target is not None:
            refuse_other_folder(target)
        lock = read_lock_file(lock_file)
        answering = {host.host: contents.system_of_host(host) for host in read_files(facts)[0]}
        orders = []
        for name in contents.chosen_groups(lock, group):
            found = plan(lock, group=name)
            if isinstance(found, Refusal):
                raise Problem(
                    f"group {name}: {found.conflicts[0].because}. Do: {found.conflicts[0].try_}", EXIT_IMPOSSIBLE
                )
            orders.append((contents.order(found, contents.collector(found, answering)), found))
        return orders

    orders = bundled(work)
    output.mkdir(parents=True, exist_ok=True)
    for stale in (*output.glob("*.json"), *output.glob("*.plan")):
        stale.unlink()
    for order, plan_of_group in orders:
        write_result(as_json(order), output / f"{order.group}.json", mode=SHARED)
        write_result(as_json(plan_of_group), output / f"{order.group}.plan", mode=SHARED)
        click.echo(f"{order.group}: {len(order.wanted)} packages and what they need, collected by {order.host}")


@COMMAND.command("make")
@lock_option
@click.option(
    "--collected", type=DIRECTORY, required=True, help="Collected packages: GROUP.json and a directory GROUP."
)
@click.option("--wheel", "wheel_name", required=True, metavar="NAME", help="File name of the gpucheck wheel.")
@click.option("--wheel-digest", required=True, metavar="HEX", help="Digest of the sources of the wheel.")
@click.option("--python-minimum", default="", metavar="VERSION", help="Oldest Python version that the wheel supports.")
@click.option("--key", default="", metavar="NAME", help="Signing key of your gpg keyring. Default: a new key.")
@click.option(
    "--trusted-keys", multiple=True, type=ExistingFile, help="Local public key of another publisher. Repeatable."
)
@several("--accept-unverified", "PATTERN,...", "Accept these packages without a signed index. Repeatable.")
@click.option(
    "-o", "--output", type=DIRECTORY, default=Path("build/bundle"), show_default=True, help="Directory of the bundle."
)
def make_command(
    lock_file: Path,
    collected: Path,
    wheel_name: str,
    wheel_digest: str,
    python_minimum: str,
    key: str,
    trusted_keys: tuple[Path, ...],
    accept_unverified: tuple[str, ...],
    output: Path,
) -> None:
    """Make the bundle from the collected packages.

    Adds metadata, wheels, manifest and signature.
    """
    from gpucheck.bundle.contents import OwnWheel, manifest_text
    from gpucheck.bundle.making import Trust, make

    wheel = OwnWheel(name=wheel_name, digest=wheel_digest, python_minimum=python_minimum)
    trust = Trust(keys=trusted_keys, unverified=accept_unverified)
    manifest = bundled(
        lambda: make(output, lock_file, collected, wheel, key, lambda line: note(f"gpucheck: {line}"), trust)
    )
    click.echo(f"{output}:\n{manifest_text(manifest)}")
