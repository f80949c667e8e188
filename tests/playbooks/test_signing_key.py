"""Signing keys: fingerprints without gpg; a file with any key that is not pinned is refused before it is written."""

import hashlib
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest

from tests.playbooks.modules import Ended, Module, shared
from tests.playbooks.planned import DATA
from tests.repositories.test_bounds import Server, forever

openpgp, signing_keys = shared("openpgp"), shared("signing_keys")
# gpg --list-keys --with-colons said these when the keys were made.
KEYS = {
    "signing-key-rsa2048.asc": "E330F152D648B8AD42B0AF30D384DE7990FFEED0",
    "signing-key-ed25519.asc": "FDEE779FA5C8D8701EE58DB39E5FF66A7905B8FB",
}
RSA, EDDSA = ((DATA / name).read_bytes() for name in KEYS)
RSA_PACKETS, EDDSA_PACKETS = openpgp.read_key(RSA), openpgp.read_key(EDDSA)
BEGIN, END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"


def packet(tag, body):
    """A new-format packet."""
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(("name", "wanted"), KEYS.items())
def test_the_fingerprint_is_the_one_gpg_gives(name, wanted):
    original = (DATA / name).read_bytes()
    key = openpgp.read_key(original)

    assert openpgp.fingerprints(key) == [wanted]
    assert openpgp.read_key(key) == key
    # Checksum included: without it the gpg of Enterprise Linux reads the last line as part of the key.
    assert openpgp.armor(key) == original


NO_KEYS = [b"", b"<html>404</html>", b"\x99", b"\x99\x01\x0d\x04", b"\xb4\x03abc", b"\x9b\x01"]


@pytest.mark.parametrize("content", [*NO_KEYS, *(RSA_PACKETS[:cut] for cut in (1, 75, 186, 270))], ids=range(10))
def test_what_is_no_key_or_cut_off_is_refused(content):
    with pytest.raises(openpgp.NotAKey):
        openpgp.read_key(content)


@pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
def test_keys_that_gpg_makes_are_read_as_gpg_reads_them(tmp_path):
    """With subkeys, several user IDs, and two primary keys in one export."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)

    def gpg(*words):
        done = subprocess.run(["gpg", "--batch", "--homedir", home, "--passphrase", "", *words], capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        for kind, name in (("rsa2048", "first"), ("ed25519", "second")):
            gpg("--quick-gen-key", name, kind, "sign", "never")
        listed = [line.split(":") for line in gpg("--with-colons", "--list-keys").decode().splitlines()]
        made = [row[9] for row in listed if row[0] == "fpr"]
        gpg("--quick-add-key", made[0], "rsa2048", "encr", "never")
        gpg("--quick-add-uid", made[0], "another name")
        for fingerprint in made:
            for armored in ([], ["--armor"]):
                assert openpgp.fingerprints(openpgp.read_key(gpg(*armored, "--export", fingerprint))) == [fingerprint]
        assert openpgp.fingerprints(openpgp.read_key(gpg("--export"))) == made
        assert openpgp.fingerprints(openpgp.read_key(gpg("--armor", "--export"))) == made
        for armored in ([], ["--armor"]):
            with pytest.raises(openpgp.NotAKey):
                openpgp.read_key(gpg(*armored, "--pinentry-mode", "loopback", "--export-secret-keys"))
    finally:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


def test_a_file_that_is_too_large_is_refused():
    with pytest.raises(openpgp.NotAKey, match="larger than"):
        openpgp.read_key(RSA + b"\n" * openpgp.LARGEST_KEY_BYTES)


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
