"""``python -m release DIR``: write the files of a release, their SBOM and their checksums."""

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from gpucheck import __version__
from release import deb, rpm, source
from release.collection import collection
from release.libraries import add_libraries
from release.problem import ReleaseError, run
from release.python import licenses, make_portable, metadata, sdist, wheel
from release.tree import fill
from release.vendored import GLIBC, PYTHONS, wheels

TOP = Path(__file__).parents[1]
LOCK = "requirements.lock"
TOOLS = "images/locks/tools.txt"
SHELLS = {
    "bash": "usr/share/bash-completion/completions/gpucheck",
    "zsh": "usr/share/zsh/vendor-completions/_gpucheck",
    "fish": "usr/share/fish/vendor_completions.d/gpucheck.fish",
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="replaced if it exists")
    parser.add_argument("--key", default="", help="of your gpg keyring: sign the checksums and the collection")
    parser.add_argument("--url", default="", help="of the repository, for links of the README and the metadata")
    parser.add_argument(
        "--machine", action="append", choices=sorted(deb.ARCHITECTURES), help="of the packages; default: all"
    )
    parser.add_argument("--python", action="append", choices=PYTHONS, help="of the packages; default: all")
    parser.add_argument("--uncommitted", action="store_true", help="a trial with files that differ from the commit")
    parser.add_argument("--no-packages", action="store_true", help="no .deb and no .rpm, and so no download")
    return parser.parse_args()


def main() -> int:
    """Print the files that were written, or the reason why not. Exit status: 0, or 1 without a release."""
    options = arguments()
    folder = options.folder.absolute()
    os.umask(0o022)  # setuptools and rpmbuild write what it leaves into their archives
    try:
        date = source.epoch(TOP)
        if not options.uncommitted:
            committed()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="gpucheck-release-") as temporary:
            build(options, Path(temporary), folder, date)
        sign(folder, options.key)
        if not options.url:
            _say("the README on a package index has no links. Add them with URL=https://... of the repository.")
    except ReleaseError as error:
        _say(f"no release: {error}")
        return 1
    print("\n".join(sorted(path.name for path in folder.iterdir())))
    return 0


def committed() -> None:
    """Raises ReleaseError for a tree that differs from its commit."""
    if changed := source.changed(TOP):
        raise ReleaseError(f"{changed} files differ from the commit. Commit them; for a trial: --uncommitted")


def build(options: argparse.Namespace, scratch: Path, folder: Path, date: int) -> None:
    """Write every file but the checksums."""
    names = source.tracked(TOP)
    wheels_of: dict[str, Path] = {}
    for machine in ("any", *deb.ARCHITECTURES):
        place = scratch / machine
        source.copy(TOP, names, place)  # building a wheel leaves files in its sources
        make_portable(place, options.url, __version__)
        if machine != "any":
            add_libraries(machine, scratch, place)
        platform = machine if machine == "any" else f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
        wheels_of[machine] = wheel(place, platform, folder, date)
    own, clean = wheels_of.pop("any"), scratch / "clean"
    source.copy(TOP, names, clean)
    sdist(clean, names, own, folder, date)
    collection(clean, folder, date)
    shutil.copyfile(clean / LOCK, folder / LOCK)
    if not options.no_packages:
        sbom(packages(options, wheels_of, scratch, folder, date), own.name.split("-")[1], scratch, folder, date)


def packages(
    options: argparse.Namespace,
    wheels_of: dict[str, Path],
    scratch: Path,
    folder: Path,
    date: int,
) -> list[Path]:
    """Write the .deb and the .rpm of each machine; return the wheels in them. wheels_of: gpucheck's own, by machine."""
    pythons = sorted(options.python or PYTHONS, key=PYTHONS.index)
    lock = (TOP / LOCK).read_text(encoding="utf-8")
    used: dict[str, Path] = {}
    for format_ in (deb, rpm):
        if not format_.available():
            _say(format_.MISSING)
    scripts = {path: completion(shell) for shell, path in SHELLS.items()}
    for machine in options.machine or sorted(wheels_of):
        own = wheels_of[machine]
        version = own.name.split("-")[1]
        root, store = scratch / f"root-{machine}", scratch / f"wheels-{machine}"
        store.mkdir()
        needed = {python: wheels(own, lock, python, machine, store) for python in pythons}
        used |= {path.name: path for found in needed.values() for path in found if path != own}
        fill(root, needed, scripts, date)
        if deb.available():
            deb.deb(root, version, machine, folder, date)
        if rpm.available():
            contained = {path for found in needed.values() for path in found}
            rpm.rpm(root, version, machine, pythons, licenses(contained), folder, date)
    return list(used.values())


def completion(shell: str) -> bytes:
    """What a shell reads to complete the words of a command line: click's own script."""
    from click.shell_completion import ShellComplete, get_completion_class

    from gpucheck.cli import cli

    kind = get_completion_class(shell) or ShellComplete
    completer = kind(cli, {}, "gpucheck", "_GPUCHECK_COMPLETE")
    # Not source(): for bash it would ask the bash of this machine for its version.
    return (completer.source_template % completer.source_vars()).encode()


def sbom(contained: list[Path], version: str, scratch: Path, folder: Path, date: int) -> None:
    """Write the software bill of materials: every wheel in the packages with its hash. Raises ReleaseError."""
    rows: dict[str, list[str]] = {}
    for path in sorted(contained, key=lambda path: path.name):
        fields = metadata(path)
        rows.setdefault(f"{fields['Name']}=={fields['Version']}", []).append(f"--hash=sha256:{source.sha256(path)}")
    listed = scratch / "wheels.txt"
    listed.write_text("".join(f"{' '.join([name, *hashes])}\n" for name, hashes in rows.items()), encoding="utf-8")
    tools, what = scratch / "tools", "writing the bill of materials"
    words: list[str | Path] = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run(
        [*words, "--require-hashes", "--requirement", TOP / TOOLS, "--target", tools],
        what=f"{what}: installing cyclonedx",
    )
    words = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible", "--sv", "1.6"]
    words += ["--pyproject", TOP / "pyproject.toml", "-o", folder / f"gpucheck-cluster-{version}.cdx.json", listed]
    run(words, what=what, environment={"SOURCE_DATE_EPOCH": str(date), "PYTHONPATH": str(tools)})


def sign(folder: Path, key: str) -> None:
    """SHA256SUMS of every file, and signatures as gpg and ansible-galaxy verify them."""
    files = sorted(folder.iterdir())
    (folder / "SHA256SUMS").write_text(
        "".join(f"{source.sha256(path)}  {path.name}\n" for path in files), encoding="utf-8"
    )
    if not key:
        _say("not signed. Sign with KEY=FINGERPRINT of your gpg keyring.")
        return
    words = ["gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign"]
    run([*words, folder / "SHA256SUMS"], what="signing the checksums")
    for archive in folder.glob("gpucheck-provision-*.tar.gz"):
        with tarfile.open(archive) as packed, tempfile.TemporaryDirectory(prefix="gpucheck-release-") as temporary:
            member = packed.extractfile("MANIFEST.json")
            manifest = Path(temporary, "MANIFEST.json")
            manifest.write_bytes(member.read() if member else b"")
            signature = folder / f"{archive.name.removesuffix('.tar.gz')}.asc"
            run([*words, "--output", signature, manifest], what="signing the collection")


def _say(text: str) -> None:
    print(f"gpucheck: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
