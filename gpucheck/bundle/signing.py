"""Signing and verifying with gpg, each time in a temporary home: keyrings of users are neither read nor changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpucheck.bundle.manifest import KEY, MANIFEST, SIGNATURE, BundleDamaged, BundleError
from gpucheck.processes import gnupg
from gpucheck.processes.gnupg import homes

IDENTITY = "gpucheck bundle"


@dataclass(frozen=True)
class Signer:
    """A secret key that signs. home: gpg's directory, None for the person's own."""

    home: Path | None
    fingerprint: str

    def sign(self, *arguments: str | Path) -> None:
        """Run gpg with this key."""
        gpg(self.home, "--local-user", self.fingerprint, *arguments)

    def public(self, path: Path) -> None:
        """Write the public half, armored."""
        path.write_text(gpg(self.home, "--armor", "--export", self.fingerprint), encoding="ascii")

    def detached(self, path: Path, signature: Path) -> None:
        """Sign a file into another, armored."""
        self.sign("--armor", "--detach-sign", "--output", signature, path)


def gpg(home: Path | None, *arguments: str | Path) -> str:
    """Return the stdout of gpg. Raises BundleError with its error message."""
    try:
        done = gnupg.gpg(home, *arguments)
    except gnupg.NotInstalledError as error:
        raise BundleError("gpg is not installed on this host. Install gnupg.") from error
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
    with homes() as home, _agent(home):
        gpg(home, "--passphrase", "", "--quick-gen-key", IDENTITY, "rsa3072", "sign", "never")
        yield Signer(home, _fingerprint(home, ""))


@contextmanager
def _agent(home: Path) -> Iterator[None]:
    try:
        with gnupg.agent(home):
            yield
    except gnupg.NotInstalledError as error:
        raise BundleError(str(error)) from error


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


def verified(manifest: bytes, signature: bytes, key: bytes, name: str) -> str:
    """The fingerprint of the key that a manifest is signed with. key: the key file, of exactly one key.

    name: the bundle, for messages. Raises BundleDamaged; also for a signature of a key that has expired or was revoked.
    """
    with homes() as home:
        for file, content in ((MANIFEST, manifest), (SIGNATURE, signature), (KEY, key)):
            (home / file).write_bytes(content)
        try:
            keys = gnupg.primary_fingerprints(gpg(home, "--with-colons", "--show-keys", home / KEY))
            gpg(home, "--import", home / KEY)
            gpg(home, "--output", home / "keyring.gpg", "--export")
            done = gnupg.verify(home / "keyring.gpg", home / SIGNATURE, home / MANIFEST)
        except gnupg.NotInstalledError as error:
            raise BundleError(str(error)) from error
        except BundleError as error:
            raise _unsigned(name, str(error)) from error
    if done.key is None or keys != [done.key]:
        reasons = gnupg.BAD | {"": f"{KEY} contains {len(keys)} keys" if len(keys) != 1 else "there is no valid one"}
        raise _unsigned(name, reasons[done.bad or ""])
    return done.key


def _unsigned(name: str, reason: str) -> BundleDamaged:
    return BundleDamaged(
        f"{name}: the signature of {MANIFEST} is invalid, so its content is not trusted: {reason}. Copy the bundle "
        "again from where it was made, or make a new one."
    )
