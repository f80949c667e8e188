"""Indexes made to exhaust their reader, to leave their mirror, or to be read in two ways: each costs its own row."""

import gzip
import itertools
import socket
import threading
import time

import pytest

from gpucheck.repositories import apt, dnf, index
from gpucheck.repositories.fetching import Network
from gpucheck.repositories.index import Relation, UnusableIndex
from gpucheck.repositories.reading import read_index
from tests.repositories import mirror
from tests.repositories.conftest import NOW
from tests.repositories.test_reading import RPMS

ROW = b'<package type="rpm"><name>a</name><arch>x86_64</arch><version ver="1" rel="1"/></package>'
ENTRIES = b'<requires><entry name="b"/></requires>'
MIB = 1 << 20


@pytest.fixture
def small(monkeypatch):
    """Bounds that a test reaches quickly."""
    monkeypatch.setattr(index, "MOST", {"packages": 1000, "dependencies": 1000, "elements": 9000})


BOMBS = {"packages": (ROW, 1001), "elements": (b"<a/>", 9001), "dependencies": (ENTRIES, 1001)}


@pytest.mark.parametrize("what", BOMBS)
def test_a_primary_list_with_more_than_any_repository_is_rejected(small, what):
    piece, times = BOMBS[what]
    with pytest.raises(UnusableIndex, match=f"more than {index.MOST[what]} {what}"):
        dnf.read_primary([b"<metadata>", *(piece for _ in range(times))])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"Package: a\nVersion: 1\nArchitecture: all\n\n" * 1001, "packages"),
        (b"Package: a\nVersion: 1\nArchitecture: all\nDepends: " + b"b," * 1001 + b"\n\n", "dependencies"),
        (b"Package: a\nVersion: 1\nArchitecture: all\nProvides: " + b"b|" * 1001 + b"\n\n", "dependencies"),
    ],
)
def test_a_package_list_with_more_than_any_repository_is_rejected(small, text, what):
    with pytest.raises(UnusableIndex, match=f"more than 1000 {what}"):
        apt.read_packages(apt.lines_of([text]))


@pytest.mark.parametrize("start", [b"<a b='", b"<!--", b"<", b"<?pi ", b"<![CDATA["])
def test_an_endless_token_is_not_read_again_with_every_piece(start):
    with pytest.raises(UnusableIndex, match=r"more than (20|1) MiB|is not XML"):
        dnf.read_primary([b"<m>" + start, *(b"x" * MIB for _ in range(30))])


def test_an_endless_text_or_line_is_not_kept():
    with pytest.raises(UnusableIndex, match="a text of more than 1 MiB"):
        dnf.read_primary([b"<a>", *(b"x" * 65536 for _ in range(100))])
    with pytest.raises(UnusableIndex, match="a line of more than 1 MiB"):
        apt.read_packages(apt.lines_of(b"x" * 65536 for _ in range(100)))


def test_pieces_are_cut_anywhere():
    """In the middle of a character, a line and a tag."""
    text = "Package: \u00e4\nVersion: 1\nArchitecture: all\nDepends: b (>= 2),\n c\n\n".encode()
    complete = apt.read_packages(apt.lines_of([text]))
    assert complete["\u00e4"][0].requires == ((Relation("b", ">=", "2"),), (Relation("c", "", ""),))
    assert apt.read_packages(apt.lines_of(bytes([one]) for one in text)) == complete
    row = b"<metadata>" + ROW.replace(b">a<", ">\u00e4<".encode()) + b"</metadata>"
    assert dnf.read_primary(bytes([one]) for one in row) == dnf.read_primary([row])


LISTED = f"SHA256:\n {'0' * 64} 1 Packages"


@pytest.mark.parametrize("again", ["", "Valid-Until", "valid-until", "sha256"])
def test_a_field_in_any_case_counts_and_one_that_is_stated_twice_is_rejected(again):
    text = f"valid-UNTIL: Sat, 01 Nov 2025 10:00:00 UTC\n{LISTED}\n"
    text += f"{again}: Sat, 01 Nov 2035 10:00:00 UTC\n" if again else ""
    with pytest.raises(UnusableIndex, match=f"states {again} twice" if again else "expired on 2025-11-01"):
        apt.read_release(text, NOW)


@pytest.mark.parametrize("other", [f" {'1' * 64} 1 Packages", f" {'0' * 64} 2 Packages"])
def test_a_list_that_a_release_file_names_twice_is_rejected_unless_both_are_equal(other):
    assert apt.read_release(f"{LISTED}\n {'0' * 64} 1 Packages\n", NOW).files
    with pytest.raises(UnusableIndex, match="lists Packages twice, differently"):
        apt.read_release(f"{LISTED}\n{other}\n", NOW)


CHECKSUM = f"<checksum type='sha256'>{'0' * 64}</checksum>"
PLACE = "<location href='repodata/a.xml'/>"
PRIMARY = f"<data type='primary'>{CHECKSUM}{PLACE}</data>"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (PRIMARY + PRIMARY, "primary"),
        (f"<x:data xmlns:x='x' type='primary'>{PLACE}</x:data>{PRIMARY}", "primary"),
        (f"<data type='primary'>{CHECKSUM}{CHECKSUM}{PLACE}</data>", "primary checksum"),
        (f"<data type='primary'>{CHECKSUM}{PLACE}{PLACE}</data>", "primary location"),
    ],
)
def test_an_element_of_repomd_that_is_stated_twice_is_rejected(text, what):
    assert dnf.read_repomd(f"<repomd>{PRIMARY}</repomd>".encode()).location == "repodata/a.xml"
    with pytest.raises(UnusableIndex, match=f"states {what} twice"):
        dnf.read_repomd(f"<repomd>{text}</repomd>".encode())


@pytest.mark.parametrize(
    ("again", "what"),
    [
        (b"<name>b</name>", "name"),
        (b"<arch>noarch</arch>", "arch"),
        (b"<version ver='9' rel='9'/>", "version"),
        (b"<package><name>b</name></package>", "package"),
    ],
)
def test_an_element_of_a_package_that_is_stated_twice_is_rejected(again, what):
    row = ROW.replace(b"</package>", again + b"</package>")
    assert dnf.read_primary([b"<metadata>", ROW, ROW, b"</metadata>"])["a"]
    with pytest.raises(UnusableIndex, match=f"states {what} twice"):
        dnf.read_primary([b"<metadata>", row, b"</metadata>"])


@pytest.mark.parametrize(
    ("stated", "right"),
    [
        ("Suite: stable\nCodename: bookworm\n", True),
        ("Suite: bookworm\nCodename: other\n", True),
        ("", True),
        ("Suite: oldstable\nCodename: bullseye\n", False),
        ("codename: bullseye\n", False),
    ],
)
def test_the_index_of_another_suite_is_rejected(stated, right):
    """The same key signs all of them."""
    text = f"{stated}{LISTED}\n"
    assert apt.read_release(text, NOW).files
    if right:
        assert apt.read_release(text, NOW, "bookworm").files
    else:
        with pytest.raises(UnusableIndex, match=r"the index is of bullseye.*, and the repository's suite is bookworm"):
            apt.read_release(text, NOW, "bookworm")


@pytest.mark.parametrize("place", ["../../secret", "repodata/../../../secret", "%2e%2e/%2e%2e/secret", "a%2fb", "x%00"])
def test_a_list_outside_the_mirror_is_not_read(tmp_path, publisher, place):
    """A checksum that fits or not would tell what a file of this machine holds."""
    root = tmp_path / "mirror/el9"
    mirror.dnf(root, publisher, RPMS)
    (tmp_path / "secret").write_bytes(gzip.compress(b"<metadata>" + ROW + b"</metadata>"))
    repomd = root / "repodata/repomd.xml"
    before, _, rest = repomd.read_text().partition('href="')
    repomd.write_text(f'{before}href="{place}"{rest.partition(chr(34))[2]}')

    row = publisher.row(root, "dnf", signed="packages")
    with pytest.raises(UnusableIndex, match="not a usable path"):
        read_index(row, "x86_64", Network(seconds=60).get, NOW)


OK = b"HTTP/1.1 200 OK\r\n"
SECONDS = 0.4
# Far more than any of these needs: what fails is a request that does not end, not a busy machine.
PATIENCE_S = 120


def forever(*pieces, pause=0.02):
    """Send the last piece again and again."""

    def answer(connection):
        for piece in pieces[:-1]:
            connection.sendall(piece)
        while True:
            connection.sendall(pieces[-1])
            time.sleep(pause)

    return answer


def silent(connection):
    while connection.recv(4096):
        pass


def redirects(connection):
    """Each answer is slow and leads to another address."""
    for _ in itertools.count():
        connection.recv(4096)
        time.sleep(0.1)
        place = f"/{time.monotonic_ns()}".encode()
        connection.sendall(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + place + b"\r\n\r\n")


class Server:
    """Serve every connection with one behavior. closed: set once a client has closed its connection."""

    def __init__(self, answer):
        self.answer, self.closed, self.asked = answer, threading.Event(), 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.asked += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            with connection:
                self.answer(connection)
        except OSError:
            pass
        self.closed.set()


@pytest.fixture
def serving(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", "/nonexistent")
    made = []

    def start(answer):
        made.append(Server(answer))
        return made[-1]

    yield start
    for server in made:
        server.listening.close()


ENDLESS = {
    "body, byte by byte": ("http", forever(OK, b"Content-Length: 100000\r\n\r\n", b"x")),
    "body without a length": ("http", forever(OK, b"\r\n", b"x")),
    "chunks of one byte": ("http", forever(OK, b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")),
    "the size of a chunk": ("http", forever(OK, b"Transfer-Encoding: chunked\r\n\r\n", b"0")),
    "trailers of a chunked body": ("http", forever(OK, b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n")),
    "status line": ("http", forever(b"HTTP/1.1 200 ", b"O")),
    "one header": ("http", forever(OK, b"X: ", b"x")),
    "interim answers": ("http", forever(b"HTTP/1.1 100 Continue\r\n\r\n")),
    "body of an error": ("http", forever(b"HTTP/1.1 503 Busy\r\nContent-Length: 100000\r\n\r\n", b"x")),
    "nothing": ("http", silent),
    "no TLS handshake": ("https", silent),
    "a TLS record": ("https", forever(b"\x16\x03\x03\x40\x00", b"\x00")),
    "redirects": ("http", redirects),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_server_that_does_not_end_costs_its_own_request(serving, name):
    scheme, answer = ENDLESS[name]
    server = serving(answer)

    with pytest.raises(UnusableIndex, match=r"not complete after 0\.4 s|timed out|HTTP 503: Busy") as error:
        Network(seconds=SECONDS).get(f"{scheme}://{server.address}/x", 1 << 30)
    assert not error.value.rejected
    assert error.value.do
    assert server.closed.wait(PATIENCE_S), "the connection was left open"


def test_a_name_server_that_does_not_respond_costs_its_own_request(monkeypatch):
    """There is no timeout for a name: the resolver's own are minutes with several servers."""
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(PATIENCE_S) or [])

    with pytest.raises(UnusableIndex, match=r"not complete after 0\.4 s"):
        Network(seconds=SECONDS).get("http://host.example/x", 1 << 30)
    ended.set()


def test_too_many_headers_and_too_large_a_body_end_early(serving):
    head, body = serving(forever(OK, b"a: b\r\n" * 1000, pause=0)), serving(forever(OK, b"\r\n", b"x" * 9000, pause=0))

    with pytest.raises(UnusableIndex, match="more than 100 headers"):
        Network(seconds=PATIENCE_S).get(f"http://{head.address}/x", 1 << 20)
    with pytest.raises(UnusableIndex, match="larger than 1 MiB"):
        Network(seconds=PATIENCE_S).get(f"http://{body.address}/x", 1 << 20)
    assert head.closed.wait(PATIENCE_S)
    assert body.closed.wait(PATIENCE_S)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 418 \x1b[2Kgpucheck: PASS\x85verified\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
        b"gpucheck: PASS\x1b[2K" + b"x" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: ftp://host/\x1b[2K\r\n\r\n",
    ],
)
def test_words_of_a_server_begin_no_line(serving, answer):
    """The reason of an error, and urllib's own message about a loop, which has three lines."""
    server = serving(lambda connection: connection.recv(4096) and connection.sendall(answer))

    with pytest.raises(UnusableIndex) as error:
        Network(seconds=PATIENCE_S).get(f"http://{server.address}/x", 1 << 20)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600
