"""Programs of this machine that bundles are made with, and the lists of packages that they write."""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpucheck.bundle.manifest import BundleError
from gpucheck.bundle.signing import Signer

TAIL_LINES = 12
# Downloads of gigabytes are among them; pip's own timeout counts from byte to byte.
SECONDS = 3600
# Program -> the packages that bring it on Debian's and on Red Hat's side.
COMES_WITH = {
    "apt-ftparchive": ("apt-utils", "apt (EPEL)"),
    "createrepo_c": ("createrepo-c", "createrepo_c"),
    "modifyrepo_c": ("createrepo-c", "createrepo_c"),
}


def run(
    words: Sequence[str | Path], *, what: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> bytes:
    """Return the stdout of a program. what: the step, for the message. Raises BundleError with its last lines."""
    program = str(words[0])
    try:
        done = subprocess.run(
            words,
            check=False,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            env={**os.environ, **(environment or {})},
        )
    except FileNotFoundError as error:
        debian, redhat = COMES_WITH.get(program, (program, program))
        raise BundleError(
            f"{what}: {program} is not installed on this host. Install {debian} (Debian, Ubuntu) or {redhat} (EL)."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BundleError(
            f"{what}: {program} did not end within {SECONDS} s. Check the network, then run make bundle again."
        ) from error
    if done.returncode:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()[-TAIL_LINES:]
        raise BundleError(f"{what}: {program} exited {done.returncode}: {' | '.join(lines)}")
    return done.stdout


def index_apt(folder: Path, signer: Signer) -> None:
    """A flat apt repository: Packages, Release, InRelease."""
    what = "writing the list of the packages"
    (folder / "Packages").write_bytes(run(["apt-ftparchive", "packages", "."], what=what, cwd=folder))
    facts = {"Origin": "gpucheck-bundle", "Label": "gpucheck-bundle", "Description": "made by gpucheck bundle"}
    options = [word for name, value in facts.items() for word in ("-o", f"APT::FTPArchive::Release::{name}={value}")]
    release = folder / "Release"
    # Written once it is known: Release must not list itself.
    release.write_bytes(run(["apt-ftparchive", *options, "release", "."], what=what, cwd=folder))
    signer.sign("--clearsign", "--output", folder / "InRelease", release)
    release.unlink()


def index_dnf(folder: Path, signer: Signer, modules: Iterable[Path]) -> None:
    """A dnf repository: repodata with the sources' module metadata, and the signature that vouches for all of it."""
    # gzip: what the newest createrepo_c would choose by itself, EL 8 cannot read.
    run(["createrepo_c", "--quiet", "--general-compress-type=gz", folder], what="writing the list of the packages")
    documents = "".join(path.read_text(encoding="utf-8").rstrip("\n") + "\n" for path in modules)
    if documents:
        written = folder / "modules.yaml"
        written.write_text(documents, encoding="utf-8")
        words: list[str | Path] = [
            "modifyrepo_c",
            "--compress-type=gz",
            "--mdtype=modules",
            written,
            folder / "repodata",
        ]
        run(words, what="adding the module metadata")
        written.unlink()
    index = folder / "repodata/repomd.xml"
    signer.detached(index, index.with_name("repomd.xml.asc"))
