"""Servers that never end: every request ends at its deadline, its connection is closed, and its row says why."""

import itertools
import socket
import threading
import time

import pytest

from gpucheck.repositories import fetching
from gpucheck.repositories.fetching import Access, Network
from gpucheck.repositories.index import UnusableIndex

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
        Network(Access(seconds=SECONDS)).get(f"{scheme}://{server.address}/x", 1 << 30)
    assert not error.value.rejected
    assert error.value.do
    assert server.closed.wait(PATIENCE_S), "the connection was left open"


def test_a_proxy_that_does_not_end_costs_its_own_request(serving, monkeypatch):
    server = serving(forever(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"))
    monkeypatch.setenv("https_proxy", f"http://{server.address}")

    with pytest.raises(UnusableIndex, match=r"https://host\.example/x: not complete after 0\.4 s"):
        Network(Access(seconds=SECONDS)).get("https://host.example/x", 1 << 30)
    assert server.closed.wait(PATIENCE_S)


def test_a_name_server_that_does_not_respond_costs_its_own_request(monkeypatch):
    """There is no timeout for a name: the resolver's own are minutes with several servers."""
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(PATIENCE_S) or [])

    with pytest.raises(UnusableIndex, match=r"not complete after 0\.4 s"):
        Network(Access(seconds=SECONDS)).get("http://host.example/x", 1 << 30)
    ended.set()


def test_another_try_has_what_the_first_left(serving, monkeypatch):
    monkeypatch.setattr(fetching, "TRIES", 1000)
    server = serving(lambda connection: time.sleep(0.05) or connection.sendall(b"HTTP/1.1 500 Busy\r\n\r\n"))

    with pytest.raises(UnusableIndex, match=r"not complete after 0\.4 s"):
        Network(Access(seconds=SECONDS)).get(f"http://{server.address}/x", 1 << 30)
    assert server.asked < 1000


def test_too_many_headers_and_too_large_a_body_end_early(serving):
    head, body = serving(forever(OK, b"a: b\r\n" * 1000, pause=0)), serving(forever(OK, b"\r\n", b"x" * 9000, pause=0))

    with pytest.raises(UnusableIndex, match="more than 100 headers"):
        Network(Access(seconds=PATIENCE_S)).get(f"http://{head.address}/x", 1 << 20)
    with pytest.raises(UnusableIndex, match="larger than 1 MiB"):
        Network(Access(seconds=PATIENCE_S)).get(f"http://{body.address}/x", 1 << 20)
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
        Network(Access(seconds=PATIENCE_S)).get(f"http://{server.address}/x", 1 << 20)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600
