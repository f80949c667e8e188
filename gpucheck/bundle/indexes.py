"""The metadata of a folder of packages, written by the package managers' own tools and signed with the bundle's key."""

from collections.abc import Iterable
from pathlib import Path

from gpucheck.bundle.programs import run
from gpucheck.bundle.signing import Signer


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
