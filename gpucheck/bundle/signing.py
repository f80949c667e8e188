"""Signing and verifying with gpg, each time in a temporary home: keyrings of users are neither read nor changed."""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpucheck.bundle.contents import KEY, MANIFEST, SIGNATURE, BundleDamaged, BundleError
from gpucheck.processes import gnupg
from gpucheck.processes.gnupg import homes

IDENTITY = "gpucheck bundle"


@dataclass(frozen=True)
class Signer:
    """A secret key that signs. home: gpg's directory, None for the person's own."""

    home: Path | None
    fingerprint: str

    def sign(self, *arguments: str | Path) -> None:
        gpg(self.home, "--local-user", self.fingerprint, *arguments)

    def public(self, path: Path) -> None:
        path.write_text(gpg(self.home, "--armor", "--export", self.fingerprint), encoding="ascii")

    def detached(self, path: Path, signature: Path) -> None:
        self.sign("--armor", "--detach-sign", "--output", signature, path)


def gpg(home: Path | None, *arguments: str | Path) -> str:
    """Return the stdout of gpg. Raises BundleError with its error message, NotInstalledError."""
    done = gnupg.gpg(home, *arguments)
    if done.returncode:
        raise BundleError(f"gpg failed: {done.stderr.decode('utf-8', 'replace').strip()}")
    return done.stdout.decode("utf-8", "replace")


@contextmanager
def signer(key: str) -> Iterator[Signer]:
    """What signs a bundle. key: of the person's own keyring, or empty.

    Empty makes a key for this bundle only, whose secret half is deleted afterwards: it cannot sign another bundle.
    """
    if key:
        yield Signer(None, _fingerprint(None, key))
        return
    with homes() as home, gnupg.agent(home):
        gpg(home, "--passphrase", "", "--quick-gen-key", IDENTITY, "rsa3072", "sign", "never")
        yield Signer(home, _fingerprint(home, ""))


def _fingerprint(home: Path | None, name: str) -> str:
    """The fingerprint of the secret key that the name means. Raises BundleError."""
    try:
        output = gpg(home, "--with-colons", "--list-secret-keys", *([name] if name else []))
        return next(line.split(":")[9] for line in output.splitlines() if line.startswith("fpr:"))
    except (BundleError, StopIteration) as error:
        raise BundleError(
            f"BUNDLE_KEY={name}: not a secret key of your keyring (gpg --list-secret-keys). Add it: gpg --import FILE. "
            f"{error}"
        ) from error


def verified(proof: Mapping[str, bytes], name: str) -> str:
    """The fingerprint of the key that a manifest is signed with.

    proof: bundle.json, its signature and the key file, of exactly one key. name: the bundle, for messages.
    Raises BundleDamaged; also for a signature of a key that has expired or was revoked.
    """
    with homes() as home:
        for file, content in proof.items():
            (home / file).write_bytes(content)
        try:
            keys = gnupg.primary_fingerprints(gpg(home, "--with-colons", "--show-keys", home / KEY))
            gpg(home, "--import", home / KEY)
            gpg(home, "--output", home / "keyring.gpg", "--export")
            done = gnupg.verify(home / "keyring.gpg", home / SIGNATURE, home / MANIFEST)
        except BundleError as error:
            raise _unsigned(name, str(error)) from error
    if done.of_the_future:
        raise BundleDamaged(
            f"{name}: its signature was made {done.of_the_future}, which is later than the clock of this machine "
            "shows, so it cannot be verified. Correct the wrong clock (timedatectl; chronyc makestep); if it was that "
            "of the machine that made the bundle, make it again."
        )
    if done.key is None or keys != [done.key]:
        reasons = gnupg.BAD | {"": f"{KEY} contains {len(keys)} keys" if len(keys) != 1 else "there is no valid one"}
        raise _unsigned(name, reasons[done.bad or ""])
    return done.key


def _unsigned(name: str, reason: str) -> BundleDamaged:
    return BundleDamaged(
        f"{name}: the signature of {MANIFEST} is invalid, so its content is not trusted: {reason}. Copy the bundle "
        "again from where it was made, or make a new one."
    )


TAIL_LINES = 12
# Downloads of gigabytes are among them; pip's own timeout counts from byte to byte.
SECONDS = 3600
# Program -> the packages that bring it on Debian's and on Red Hat's side.
COMES_WITH = {
    "apt-ftparchive": ("apt-utils", "apt (EPEL)"),
    **dict.fromkeys(("createrepo_c", "modifyrepo_c"), ("createrepo-c", "createrepo_c")),
}


def run(
    words: Sequence[str | Path], *, what: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> bytes:
    """Return the stdout of a program. what: the step, for the message. Raises BundleError with its last lines."""
    program = str(words[0])
    try:
        none, env = subprocess.DEVNULL, {**os.environ, **(environment or {})}
        done = subprocess.run(words, check=False, cwd=cwd, stdin=none, capture_output=True, timeout=SECONDS, env=env)
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
        words = ["modifyrepo_c", "--compress-type=gz", "--mdtype=modules"]
        run([*words, written, folder / "repodata"], what="adding the module metadata")
        written.unlink()
    index = folder / "repodata/repomd.xml"
    signer.detached(index, index.with_name("repomd.xml.asc"))
