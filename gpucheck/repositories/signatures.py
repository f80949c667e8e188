"""Verify the signature of an index with the key that the plan pins, in a keyring that is removed afterwards."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpucheck.processes import gnupg
from gpucheck.repositories.index import UnusableIndex

SECONDS = 60


class Keyring:
    """The pinned keys of one repository."""

    def __init__(self, home: Path, path: Path) -> None:
        self.home, self.path = home, path

    def clearsigned(self, content: bytes) -> tuple[bytes, str]:
        """Return (the signed text, fingerprint of the key) of a clear-signed file. Raises UnusableIndex."""
        if not gnupg.is_single_message(content):
            raise UnusableIndex("InRelease is not one signed message", "Do not trust this mirror; synchronize it again")
        text, key = self._verify("--output", "-", self._written("signed", content))
        return text, key

    def detached(self, content: bytes, signature: bytes) -> str:
        """Return the fingerprint of the key that made a detached signature. Raises UnusableIndex."""
        return self._verify(self._written("signature", signature), self._written("signed", content))[1]

    def _written(self, name: str, content: bytes) -> Path:
        path = self.home / name
        path.write_bytes(content)
        return path

    def _verify(self, *arguments: str | Path) -> tuple[bytes, str]:
        with _usable():
            done = gnupg.verify(self.path, *arguments, seconds=SECONDS)
        if done.key is not None:
            return done.text, done.key
        if "NO_PUBKEY" in done.statuses and not done.bad:
            reason = f"signed with key {done.statuses['NO_PUBKEY'][-1]}, which is not the pinned one"
        else:
            reason = gnupg.BAD.get(done.bad or "", "there is no valid signature")
        raise UnusableIndex(
            reason, "Do not install from it. Synchronize the mirror again, or compare with its publisher"
        )


@contextmanager
def keyring(key: bytes, pinned: str, where: str) -> Iterator[Keyring]:
    """A keyring with the keys of a file, which must all be pinned. pinned: fingerprints separated by commas.

    where: address of the key, for messages. Raises UnusableIndex, also if gpg is not installed.
    """
    with gnupg.homes() as home:
        file = home / "key"
        file.write_bytes(key)
        pins = re.sub(r"\s", "", pinned).upper().split(",")
        found = _fingerprints(home, file)
        if not found:
            raise UnusableIndex(f"{where} holds no OpenPGP key", "Correct key_url of the repository")
        foreign = [one for one in found if one not in pins]
        if foreign:
            raise UnusableIndex(
                f"{where} holds key {', '.join(foreign)}; pinned is {', '.join(pins)}",
                "Do not trust it. If the publisher changed the key, compare the new fingerprint with the publisher's "
                "own page and set key_fingerprint in stack.yml",
            )
        ring = home / "pinned.gpg"
        # gpg without its agent, as on minimal hosts, imports the key and exits with 2: the result counts.
        with _usable():
            imported = gnupg.gpg(home, "--import", file, seconds=SECONDS)
            gnupg.gpg(home, "--output", ring, "--export", seconds=SECONDS)
        if not ring.is_file() or not ring.stat().st_size:
            reason = imported.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise UnusableIndex(
                f"gpg on this machine cannot use the key {where}: {reason[0]}", "Compare the key with its publisher's"
            )
        yield Keyring(home, ring)


def _fingerprints(home: Path, file: Path) -> list[str]:
    with _usable():
        done = gnupg.gpg(home, "--with-colons", "--show-keys", file, seconds=SECONDS)
    return gnupg.primary_fingerprints(done.stdout.decode("utf-8", "replace"))


@contextmanager
def _usable() -> Iterator[None]:
    """Raise UnusableIndex, without rejecting the index, if GnuPG cannot run here."""
    try:
        yield
    except gnupg.NotInstalledError as error:
        raise UnusableIndex(
            f"{error.program} is not installed on this machine, so no signature can be verified",
            f"Install {error.package}",
            rejected=False,
        ) from None
    except gnupg.HungError as error:
        raise UnusableIndex(str(error), "Try again", rejected=False) from None
