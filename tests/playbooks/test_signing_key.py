"""Signing keys: fingerprints without gpg; a file with any key that is not pinned is refused before it is written."""

import http.server
import json
import signal
import threading
import urllib.request
from functools import partial

import pytest

from tests.playbooks.modules import Ended, Module, answer_of, module, shared
from tests.playbooks.signing_keys import BEGIN, DATA, EDDSA, EDDSA_PACKETS, END, KEYS, RSA, RSA_PACKETS, openpgp, packet
from tests.playbooks.test_runs import BIN, run
from tests.repositories.test_hostile_servers import Server, forever

signing_key = module("signing_key")


@pytest.fixture
def server():
    """The data folder over HTTP; .hits counts the requests."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        hits = 0

        def do_GET(self):
            Handler.hits += 1
            super().do_GET()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(DATA))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", Handler
        running.shutdown()


def install(**options: object) -> dict[str, object]:
    """Run the module the way Ansible does; options are its arguments."""
    arguments = " ".join(f"{key}='{value}'" for key, value in options.items())
    where = ("localhost", "-i", "localhost,", "-c", "local")
    done = run(str(BIN / "ansible"), *where, "-o", "-m", "gpucheck.provision.signing_key", "-a", arguments)
    answer: dict[str, object] = json.loads(done.stdout.split("=>", 1)[1])
    return {**answer, "failed": done.returncode != 0}


def test_the_pinned_key_is_installed_once_and_needs_no_network_again(tmp_path, server):
    url, handler = server
    dest = tmp_path / "keyrings/test.gpg"
    options = {"url": f"{url}/signing-key-rsa2048.asc", "dest": dest, "fingerprint": KEYS["signing-key-rsa2048.asc"]}

    assert install(**options)["changed"] is True
    assert openpgp.fingerprints(dest.read_bytes()) == [KEYS["signing-key-rsa2048.asc"]]
    assert dest.stat().st_mode & 0o777 == 0o644
    hits = handler.hits

    assert install(**options)["changed"] is False
    assert handler.hits == hits


def given_file(tmp_path, monkeypatch, content, fingerprint=KEYS["signing-key-rsa2048.asc"]):
    """What signing_key does with this file as the publisher's, and whether it wrote one."""

    class Response:
        def read(self, count):
            return content[:count]

    monkeypatch.setattr(shared("signing_keys"), "fetch_url", lambda *_, **__: (Response(), {"status": 200}))
    dest = tmp_path / "key.gpg"
    answer = answer_of(signing_key, {"url": "https://m/key", "dest": str(dest), "fingerprint": fingerprint})
    return answer, dest.exists()


@pytest.mark.parametrize(
    "content",
    [
        EDDSA,
        RSA_PACKETS + EDDSA_PACKETS,
        openpgp.armor(RSA_PACKETS + EDDSA_PACKETS),
        RSA + EDDSA,
        RSA + EDDSA_PACKETS,
        EDDSA_PACKETS + RSA,
        RSA_PACKETS + EDDSA,
        RSA_PACKETS + packet(5, b"\x04secret"),
        RSA_PACKETS + packet(7, b"\x04secret"),
        RSA_PACKETS + packet(11, b"b\0\0\0\0\0text"),
        RSA_PACKETS + packet(63, b"private"),
        RSA_PACKETS + packet(6, b"\x03old"),
        RSA_PACKETS + b"\0" * 20,
        RSA_PACKETS + b"\x9b",
        packet(13, b"name") + RSA_PACKETS,
        RSA.replace(END, BEGIN + b"\n\n" + END),
        RSA.replace(b"PUBLIC KEY", b"PRIVATE KEY"),
        RSA.replace(b"\n=", b"\n=AAAA\n="),
        b"\0\xff" + RSA,
    ],
    ids=range(19),
)
def test_a_file_with_anything_but_the_pinned_key_is_refused(tmp_path, monkeypatch, content):
    answer, written = given_file(tmp_path, monkeypatch, content)

    assert answer["failed"] is True
    assert "othing was written" in answer["msg"]
    assert not written


@pytest.mark.parametrize(
    "content", [RSA, RSA_PACKETS, b"pub rsa2048\r\n" + RSA.replace(b"\n", b"\r\n"), RSA_PACKETS + packet(12, b"\0")]
)
def test_every_form_of_the_pinned_key_alone_is_taken(tmp_path, monkeypatch, content):
    answer, written = given_file(tmp_path, monkeypatch, content)

    assert answer["failed"] is False
    assert answer["fingerprints"] == [KEYS["signing-key-rsa2048.asc"]]
    assert written


def test_a_publisher_with_two_keys_needs_both_pinned(tmp_path, monkeypatch):
    both = openpgp.armor(RSA_PACKETS + EDDSA_PACKETS)
    stated = "fdee 779f a5c8 d870 1ee5  8db3 9e5f f66a 7905 b8fb, " + KEYS["signing-key-rsa2048.asc"]

    answer, written = given_file(tmp_path, monkeypatch, both)
    assert KEYS["signing-key-ed25519.asc"] in answer["msg"]
    assert not written

    assert given_file(tmp_path, monkeypatch, both, stated)[0]["fingerprints"] == list(KEYS.values())
    assert given_file(tmp_path, monkeypatch, RSA, stated)[0]["changed"] is False


@pytest.mark.parametrize("stated", ["", "  ,", "90FFEED0", "0xE330F152D648B8AD42B0AF30D384DE7990FFEED0"])
def test_without_a_complete_fingerprint_no_key_is_taken(tmp_path, monkeypatch, stated):
    answer, written = given_file(tmp_path, monkeypatch, RSA, stated)

    assert answer["failed"] is True
    assert "key_fingerprint" in answer["msg"]
    assert not written


def test_a_planted_second_key_on_the_host_is_replaced(tmp_path, monkeypatch):
    dest = tmp_path / "key.gpg"
    dest.write_bytes(RSA_PACKETS + EDDSA_PACKETS)

    answer, _ = given_file(tmp_path, monkeypatch, RSA)

    assert answer["changed"] is True
    assert dest.read_bytes() == RSA_PACKETS


def test_a_key_server_that_does_not_end_costs_one_task(monkeypatch):
    """The timeout of fetch_url counts from byte to byte: one byte every 20 s would hold the host for weeks."""
    signing_keys = shared("signing_keys")
    server = Server(forever(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", b"x"))
    monkeypatch.setattr(signing_keys, "FETCH_SECONDS", 1)
    opened = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    monkeypatch.setattr(signing_keys, "fetch_url", lambda _, url, timeout: (opened(url), {"status": 200, "msg": "OK"}))

    with pytest.raises(Ended, match=r"key http://.* cannot be fetched: not complete after 1 s\. Check that the host"):
        signing_keys.fetch(Module({}), f"http://{server.address}/key.asc")
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) != signing_keys.late
