"""GnuPG: gpg and gpgv in a home of their own, the keys of a file, and who signed what.

A keyring of the user is read or changed only if the caller names no home.
"""

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from socket import AF_UNIX, socket
from time import monotonic, sleep, time
from typing import NamedTuple, TypeAlias

from gpucheck.processes.temporary import temporary_folder

Finished: TypeAlias = "subprocess.CompletedProcess[bytes]"
MESSAGE, SIGNATURE = b"-----BEGIN PGP SIGNED MESSAGE-----", b"-----BEGIN PGP SIGNATURE-----"
# Statuses of gpgv that make a signature unacceptable even if another one is good: doc/DETAILS of GnuPG.
BAD = {
    "BADSIG": "the signature does not match: the signed file was changed or is incomplete",
    "EXPSIG": "the signature has expired",
    "EXPKEYSIG": "the signing key has expired",
    "REVKEYSIG": "the signing key was revoked",
}
SOCKET, AGENT_S = "S.gpg-agent", 60.0
PACKAGES = {
    "gpg": "gnupg",
    "gpg-agent": "gpg-agent (Debian, Ubuntu) or gnupg2 (EL)",
    "gpgv": "gpgv (Debian, Ubuntu) or gnupg2 (EL)",
}


class NotInstalledError(Exception):
    """program is not on this host; package: what to install."""

    def __init__(self, program: str) -> None:
        self.program, self.package = program, PACKAGES[program]
        super().__init__(f"{program} is not installed on this machine. Install {self.package}.")


class HungError(Exception):
    """program did not exit within the seconds it had."""

    def __init__(self, program: str, seconds: float) -> None:
        self.program = program
        super().__init__(f"{program} did not end within {seconds:g} s")


class Verified(NamedTuple):
    """key: fingerprint of the primary key of a good signature, None without one. text: what it signs, if written.

    statuses: the status lines of gpgv by keyword, each as its fields.
    """

    key: str | None
    text: bytes
    statuses: dict[str, list[str]]

    @property
    def bad(self) -> str | None:
        """The first status that makes the signature unacceptable."""
        return next((name for name in BAD if name in self.statuses), None)

    @property
    def of_the_future(self) -> str:
        """When the signature was made, in UTC, if gpgv rejects it as later than this machine's clock; else empty."""
        row = self.statuses.get("ERRSIG", [])
        seconds = int(row[6]) if len(row) > 6 and row[6].isdecimal() else 0
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC" if seconds > time() else ""


def gpg(home: Path | None, *arguments: str | Path, seconds: float | None = None) -> Finished:
    """Run gpg without questions. home: its directory, None for the user's. Raises NotInstalledError, HungError.

    In a directory of its own gpg has the agent that `agent` started, and needs none for public keys.
    """
    where: list[str | Path] = ["--homedir", home, "--no-autostart"] if home else []
    return _run(["gpg", "--batch", "--yes", "--no-tty", *where, *arguments], seconds)


@contextmanager
def homes() -> Iterator[Path]:
    """A directory for gpg, removed afterwards; if this process is killed, the next run removes it."""
    # Not below the checkout: the agent's socket is created here, and socket paths are short.
    with temporary_folder("gpg") as home:
        yield home


@contextmanager
def agent(home: Path) -> Iterator[None]:
    """Run the agent that holds the secret keys of a directory; it ends with this process. Raises NotInstalledError.

    Started by gpg it would stay for ever. It ends some seconds after the program that it was started with, and cat ends
    when this process closes its pipe, or is killed.
    """
    words: list[str | Path] = ["gpg-agent", "--homedir", home, "--quiet", "--daemon", "--", "cat"]
    null = subprocess.DEVNULL
    try:
        running = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=null, stderr=null)
    except FileNotFoundError:
        raise NotInstalledError("gpg-agent") from None
    try:
        end = monotonic() + AGENT_S
        while not _listens(home / SOCKET) and running.poll() is None and monotonic() < end:
            sleep(0.01)
        yield
    finally:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)
        running.kill()
        running.communicate()


def _listens(path: Path) -> bool:
    """Whether a program accepts connections there: the file of a socket exists before it does."""
    with socket(AF_UNIX) as one, suppress(OSError):
        one.connect(str(path))
        return True
    return False


def key_digest(content: bytes) -> str:
    """Return the SHA-256 of a key file in hexadecimal; lines of its armor that begin with Version do not count.

    So NVIDIA's images pin it: these lines name the program that wrote the file.
    """
    lines = content.splitlines(keepends=True)
    return hashlib.sha256(b"".join(line for line in lines if not line.startswith(b"Version"))).hexdigest()


def primary_fingerprints(listing: str) -> list[str]:
    """Return the fingerprints of the primary keys in the output of ``gpg --with-colons``."""
    rows = [row.split(":") for row in listing.splitlines()]
    primary = [number for number, row in enumerate(rows) if row[0] in ("pub", "sec")]
    return [rows[number + 1][9] for number in primary if number + 1 < len(rows) and len(rows[number + 1]) > 9]


def is_single_message(content: bytes) -> bool:
    """Whether it is one clear-signed message from its first byte on: text before or after one is not signed."""
    return content.startswith(MESSAGE) and content.count(MESSAGE) == content.count(SIGNATURE) == 1


def verify(keyring: Path, *arguments: str | Path, seconds: float | None = None) -> Verified:
    """Run gpgv with the keys of this file. Raises NotInstalledError, HungError.

    arguments: a signature and the signed file; for a clear-signed one ``--output -`` and the file.
    """
    words = ["gpgv", "--homedir", keyring.parent, "--keyring", keyring, "--status-fd", "2", *arguments]
    done = _run(words, seconds)
    rows = [row.split() for row in done.stderr.decode("utf-8", "replace").splitlines()]
    statuses = {row[1]: row for row in rows if len(row) > 1 and row[0] == "[GNUPG:]"}
    good = {"VALIDSIG", "GOODSIG"} <= statuses.keys() and not any(name in statuses for name in BAD)
    # The last field is the primary key's fingerprint, which is the one that is pinned.
    return Verified(statuses["VALIDSIG"][-1] if good else None, done.stdout, statuses)


def _run(words: list[str | Path], seconds: float | None) -> Finished:
    program = str(words[0])
    try:
        return subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
    except FileNotFoundError:
        raise NotInstalledError(program) from None
    except subprocess.TimeoutExpired:
        raise HungError(program, seconds or 0) from None
