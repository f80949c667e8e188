"""Verify the signature of an index with the key that the plan pins, in a keyring that is removed afterwards."""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpucheck.repositories.index import UnusableIndex

BEGIN, SIGNATURE = b"-----BEGIN PGP SIGNED MESSAGE-----", b"-----BEGIN PGP SIGNATURE-----"
# Statuses of gpgv that make a signature unacceptable even if another one is good: doc/DETAILS of GnuPG.
BAD = ("BADSIG", "EXPSIG", "EXPKEYSIG", "REVKEYSIG")
SECONDS = 60


class Keyring:
    """The pinned keys of one repository."""

    def __init__(self, home: Path, path: Path) -> None:
        self.home, self.path = home, path

    def clearsigned(self, content: bytes) -> tuple[bytes, str]:
        """Return (the signed text, fingerprint of the key) of a clear-signed file. Raises UnusableIndex."""
        # One message and nothing around it: what stands outside of it is not signed.
        if not content.startswith(BEGIN) or not content.count(BEGIN) == content.count(SIGNATURE) == 1:
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
        words = ["gpgv", "--homedir", self.home, "--keyring", self.path, "--status-fd", "2", *arguments]
        done = _run(words, "gpgv")
        rows = [row.split() for row in done.stderr.decode("utf-8", "replace").splitlines()]
        found = {row[1]: row for row in rows if len(row) > 1 and row[0] == "[GNUPG:]"}
        bad = [name for name in BAD if name in found]
        if "VALIDSIG" in found and "GOODSIG" in found and not bad:
            # The last field is the primary key's fingerprint, which is the one that is pinned.
            return done.stdout, found["VALIDSIG"][-1]
        if "NO_PUBKEY" in found and not bad:
            reason = f"signed with key {found['NO_PUBKEY'][-1]}, which is not the pinned one"
        else:
            reason = {
                "BADSIG": "the signature does not match: the index was changed or is incomplete",
                "EXPSIG": "the signature has expired",
                "EXPKEYSIG": "the signing key has expired",
                "REVKEYSIG": "the signing key was revoked",
            }.get(bad[0] if bad else "", "there is no valid signature")
        raise UnusableIndex(
            reason, "Do not install from it. Synchronize the mirror again, or compare with its publisher"
        )


@contextmanager
def keyring(key: bytes, pinned: str, where: str) -> Iterator[Keyring]:
    """A keyring with the keys of a file, which must all be pinned. pinned: fingerprints separated by commas.

    where: address of the key, for messages. Raises UnusableIndex, also if gpg is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="gpucheck-gpg-") as name:
        home = Path(name)
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
        words: list[str | Path] = ["gpg", "--homedir", home, "--batch", "--no-tty"]
        imported = _run([*words, "--import", file], "gpg")
        _run([*words, "--output", ring, "--export"], "gpg")
        if not ring.is_file() or not ring.stat().st_size:
            reason = imported.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise UnusableIndex(
                f"gpg on this machine cannot use the key {where}: {reason[0]}", "Compare the key with its publisher's"
            )
        yield Keyring(home, ring)


def _fingerprints(home: Path, file: Path) -> list[str]:
    """Return the fingerprints of the primary keys of a file."""
    done = _run(["gpg", "--homedir", home, "--batch", "--no-tty", "--with-colons", "--show-keys", file], "gpg")
    rows = [row.split(":") for row in done.stdout.decode("utf-8", "replace").splitlines()]
    primary = [number for number, row in enumerate(rows) if row[0] in ("pub", "sec")]
    return [rows[number + 1][9] for number in primary if number + 1 < len(rows) and len(rows[number + 1]) > 9]


def _run(words: Sequence[str | Path], program: str) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS)
    except FileNotFoundError:
        package = {"gpg": "gnupg", "gpgv": "gpgv (Debian, Ubuntu) or gnupg2 (EL)"}[program]
        raise UnusableIndex(
            f"{program} is not installed on this machine, so no signature can be verified",
            f"Install {package}",
            rejected=False,
        ) from None
    except subprocess.TimeoutExpired:
        raise UnusableIndex(f"{program} did not end within {SECONDS} s", "Try again", rejected=False) from None
