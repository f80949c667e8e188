"""Signing keys: fingerprints without gpg; a file with any key that is not pinned is refused before it is written."""

import hashlib
import re
import signal
import urllib.request

import pytest

from tests.playbooks.modules import Ended, Module, shared
from tests.playbooks.signing_keys import BEGIN, EDDSA, EDDSA_PACKETS, END, KEYS, RSA, RSA_PACKETS, openpgp, packet
from tests.repositories.test_bounds import Server, forever

signing_keys = shared("signing_keys")


def given_file(monkeypatch, content, fingerprint=KEYS["signing-key-rsa2048.asc"]):
    """(key, the key in armor) of this file as the publisher's; raises Ended where it is refused."""

    class Response:
        def read(self, count):
            return content[:count]

    monkeypatch.setattr(signing_keys, "fetch_url", lambda *_, **__: (Response(), {"status": 200}))
    return signing_keys.pinned(Module({}), "https://m/key", shared("package_repository").pins(fingerprint))


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
def test_a_file_with_anything_but_the_pinned_key_is_refused(monkeypatch, content):
    with pytest.raises(Ended, match="othing was written"):
        given_file(monkeypatch, content)


@pytest.mark.parametrize(
    "content", [RSA, RSA_PACKETS, b"pub rsa2048\r\n" + RSA.replace(b"\n", b"\r\n"), RSA_PACKETS + packet(12, b"\0")]
)
def test_every_form_of_the_pinned_key_alone_is_taken(monkeypatch, content):
    key, armored = given_file(monkeypatch, content)

    assert openpgp.fingerprints(key) == [KEYS["signing-key-rsa2048.asc"]]
    assert armored == openpgp.armor(key)


def test_a_publisher_with_two_keys_needs_both_pinned(monkeypatch):
    both = openpgp.armor(RSA_PACKETS + EDDSA_PACKETS)
    stated = "fdee 779f a5c8 d870 1ee5  8db3 9e5f f66a 7905 b8fb, " + KEYS["signing-key-rsa2048.asc"]

    with pytest.raises(Ended, match=KEYS["signing-key-ed25519.asc"]):
        given_file(monkeypatch, both)
    assert openpgp.fingerprints(given_file(monkeypatch, both, stated)[0]) == list(KEYS.values())


def digest_of(content):
    """As NVIDIA's images state it: sed '/^Version/d' | sha256sum."""
    return hashlib.sha256(re.sub(rb"(?m)^Version.*\n", b"", content)).hexdigest()


def test_a_pinned_digest_of_the_key_file_is_proof_equal_to_a_fingerprint(monkeypatch, tmp_path):
    """The file that is written can be compared again: the next run finds nothing to do."""
    stated = RSA.replace(b"BLOCK-----\n", b"BLOCK-----\nVersion: GnuPG v2.0.22 (GNU/Linux)\n", 1)
    pin = f"sha256:{digest_of(stated)}"
    rows = shared("package_repository")

    assert digest_of(stated) == digest_of(RSA)
    key, armored = given_file(monkeypatch, stated, pin)
    assert openpgp.fingerprints(key) == [KEYS["signing-key-rsa2048.asc"]]
    (tmp_path / "key").write_bytes(armored)
    assert rows.file_pinned(str(tmp_path / "key"), rows.pins(pin))
    (tmp_path / "key").write_bytes(EDDSA)
    assert not rows.file_pinned(str(tmp_path / "key"), rows.pins(pin))


@pytest.mark.parametrize("stated", ["", "  ,", "90FFEED0", "0xE330F152D648B8AD42B0AF30D384DE7990FFEED0"])
def test_without_a_complete_fingerprint_no_key_is_taken(monkeypatch, stated):
    with pytest.raises(Ended, match="key_fingerprint"):
        given_file(monkeypatch, RSA, stated)


def test_a_key_server_that_does_not_end_costs_one_task(monkeypatch):
    """The timeout of fetch_url counts from byte to byte: one byte every 20 s would hold the host for weeks."""
    server = Server(forever(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", b"x"))
    monkeypatch.setattr(signing_keys, "FETCH_SECONDS", 1)
    opened = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
    monkeypatch.setattr(signing_keys, "fetch_url", lambda _, url, timeout: (opened(url), {"status": 200, "msg": "OK"}))

    with pytest.raises(Ended, match=r"key http://.* cannot be fetched: not complete after 1 s\. Check that the host"):
        signing_keys.fetch(Module({}), f"http://{server.address}/key.asc")
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) != signing_keys.late
