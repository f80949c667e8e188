"""Fetch small files of repositories: over the network through your proxy and credentials, or as saved before."""

import netrc
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path

from gpucheck.foreign import UnreadableInput, opened, read_bytes
from gpucheck.printable import excerpt
from gpucheck.processes.atomic import SHARED, write_atomic
from gpucheck.processes.deadline import StuckError, in_time
from gpucheck.repositories.index import UnusableIndex

PIECE_BYTES = 1 << 20
# A certificate store with every public authority has 0.3 MiB.
MOST_ACCESS = 4 << 20
MOST_REASON = 200
SCHEMES = ("https", "http", "file")
TRIES = 2
AGENT = {"User-Agent": "gpucheck stack check-repositories"}
REASONS = {
    401: "the server requires credentials",
    403: "the server rejects the request",
    404: "there is no such file",
    407: "the proxy requires credentials",
}


class NotThere(UnusableIndex):
    """The server has no such file."""


# Returns the content of a URL, of at most so many bytes. Raises UnusableIndex, and NotThere if there is no such file.
Fetch = Callable[[str, int], bytes]


class Network:
    """Files from the network, by the proxies of the environment. Raises ValueError for files that cannot be used.

    seconds: for one file: looking up the name, connecting, TLS, redirects, headers, content and another try.
    netrc_file: credentials by host name.
    """

    def __init__(self, seconds: float = 60.0, netrc_file: Path | None = None) -> None:
        self.seconds = seconds
        self.credentials = _credentials(netrc_file)
        self.opener = urllib.request.build_opener(_SameKindRedirects())

    def get(self, url: str, most: int) -> bytes:
        """Return the content of a URL, in time and whatever the server sends."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in SCHEMES:
            raise UnusableIndex(f"{url}: not an https, http or file URL", "Correct the repository's url in stack.yml")
        try:
            # Timeouts of a socket count from byte to byte, and there is none for a name server.
            return in_time("download", lambda: self._got(parts, most), self.seconds)
        except StuckError:
            name, do = without_credentials(url), "Check the network and the server"
            raise UnusableIndex(f"{name}: not complete after {self.seconds:g} s", do, rejected=False) from None

    def _got(self, parts: urllib.parse.SplitResult, most: int) -> bytes:
        if parts.scheme == "file":
            return _local(Path(urllib.parse.unquote(parts.path)), most)
        url = without_credentials(urllib.parse.urlunsplit(parts))
        for left in reversed(range(TRIES)):
            try:
                return self._read(self._request(parts), most)
            except urllib.error.HTTPError as error:
                refused, final = _refused(url, error), error.code < 500
            except UnusableIndex:
                raise
            except (OSError, HTTPException, ValueError) as error:
                reason = getattr(error, "reason", None) or error
                reason = getattr(reason, "strerror", None) or reason
                do = "Check the address, the network and the proxy (https_proxy, no_proxy)"
                refused = UnusableIndex(f"{url}: {excerpt(str(reason), MOST_REASON)}", do, rejected=False)
                final = False
            if final or not left:
                raise refused
        raise AssertionError("no try")

    def _request(self, parts: urllib.parse.SplitResult) -> urllib.request.Request:
        request = urllib.request.Request(without_credentials(urllib.parse.urlunsplit(parts)), headers=AGENT)  # noqa: S310
        user, password = parts.username, parts.password
        if user is None:
            user, password = self.credentials.get(parts.hostname or "", (None, None))
        if user is not None:
            import base64

            pair = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password or '')}"
            request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
        return request

    def _read(self, request: urllib.request.Request, most: int) -> bytes:
        pieces, size = [], 0
        with self.opener.open(request, timeout=min(30.0, self.seconds)) as response:
            expected = response.headers.get("Content-Length", "")
            while piece := response.read1(PIECE_BYTES):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise UnusableIndex(
                        f"{request.full_url}: larger than {most >> 20} MiB", "Check the address of the repository"
                    )
            if expected.isdecimal() and size < int(expected):
                raise TimeoutError(f"the connection ended after {size} of {expected} bytes")
        return b"".join(pieces)


def saved(directory: Path) -> Fetch:
    """Files as `saving` wrote them below a directory."""

    def get(url: str, most: int) -> bytes:
        place = directory / place_of(url)
        if not place.is_file():
            raise NotThere(f"{place}: not saved", "Save the index again with --save", rejected=False)
        return _local(place, most)

    return get


def saving(fetch: Fetch, directory: Path) -> Fetch:
    """What another one fetches, also written below a directory. Raises OSError if it cannot be written."""

    def get(url: str, most: int) -> bytes:
        content = fetch(url, most)
        place = directory / place_of(url)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, content, mode=SHARED)
        return content

    return get


def place_of(url: str) -> Path:
    """Return the path of a URL below a saved index: host name and path, the layout that wget -x writes.

    Raises UnusableIndex for a URL that would leave the directory.
    """
    parts = urllib.parse.urlsplit(url)
    names = [parts.hostname or parts.scheme, *(urllib.parse.unquote(name) for name in parts.path.split("/") if name)]
    if any(name in (".", "..") or "/" in name or "\0" in name or len(name.encode()) > 255 for name in names):
        raise UnusableIndex(f"{without_credentials(url)}: not a usable path", "Correct the repository's url")
    return Path(*names)


def without_credentials(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _local(path: Path, most: int) -> bytes:
    try:
        return read_bytes(path, most)
    except UnreadableInput as error:
        missing = not path.exists()
        raise (NotThere if missing else UnusableIndex)(
            f"{path}: {error.what}", "Check the path", rejected=False
        ) from None


def _credentials(path: Path | None) -> Mapping[str, tuple[str, str]]:
    """Host name -> (user, password). Without a path: the user's ~/.netrc if it is there and private."""
    chosen = path or Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    if path is None and not chosen.is_file():
        return {}
    try:
        with _named(chosen) as name:
            found = netrc.netrc(name)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError, UnreadableInput) as error:
        if path is None:
            return {}
        if isinstance(error, UnreadableInput):
            raise
        # As text the error names the descriptor.
        what = f"line {error.lineno}: {error.msg}" if isinstance(error, netrc.NetrcParseError) else str(error)
        raise ValueError(f"{chosen}: not a usable netrc file: {what}") from error
    return {host: (row[0], row[2] or "") for host, row in found.hosts.items() if host != "default"}


@contextmanager
def _named(path: Path) -> Iterator[str]:
    """A name for libraries that open files themselves, of a file that is open: regular and of a usual size."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_ACCESS:
            raise UnreadableInput(str(path), f"larger than {MOST_ACCESS >> 20} MiB")
        descriptor = os.dup(file.fileno())
    try:
        yield f"/dev/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _refused(url: str, error: urllib.error.HTTPError) -> UnusableIndex:
    reason = REASONS.get(error.code) or excerpt(str(error.reason), MOST_REASON)
    kind = NotThere if error.code in (404, 410) else UnusableIndex
    do = "Check the address of the repository, and that a mirror is synchronized"
    if error.code in (401, 403, 407):
        do = "Give credentials in a netrc file (--netrc)"
    return kind(f"{url}: HTTP {error.code}: {reason}", do, rejected=False)


class _SameKindRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https only, and never from https to http."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        old, new = urllib.parse.urlsplit(req.full_url).scheme, urllib.parse.urlsplit(newurl).scheme
        if new not in ("http", "https") or (old == "https" and new == "http"):
            raise ValueError(f"redirects to {without_credentials(newurl)}, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
