"""Signing keys: fingerprints without gpg; a file with any key that is not pinned is refused before it is written."""

import contextlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.playbooks.modules import PLAYBOOKS, answer_of, module, shared

openpgp = shared("openpgp")
DATA = Path(__file__).parent / "data"
# gpg --list-keys --with-colons said these when the keys were made.
KEYS = {
    "signing-key-rsa2048.asc": "E330F152D648B8AD42B0AF30D384DE7990FFEED0",
    "signing-key-ed25519.asc": "FDEE779FA5C8D8701EE58DB39E5FF66A7905B8FB",
}


@pytest.mark.parametrize(("name", "wanted"), KEYS.items())
def test_the_fingerprint_is_the_one_gpg_gives(name, wanted):
    key = openpgp.read_key((DATA / name).read_bytes())

    assert openpgp.fingerprints(key) == [wanted]
    assert openpgp.read_key(key) == key
    assert openpgp.read_key(openpgp.armor(key)) == key


@pytest.mark.parametrize("name", KEYS)
def test_the_armor_is_gpgs_own(name):
    """Checksum included: without it the gpg of Enterprise Linux reads the last line as part of the key."""
    original = (DATA / name).read_bytes()

    assert openpgp.armor(openpgp.read_key(original)) == original


@pytest.mark.parametrize(
    "content", [b"", b"<html>404</html>", b"\x99", b"\x99\x01\x0d\x04", b"\xb4\x03abc", b"\x9b\x01"]
)
def test_what_is_no_key_is_refused(content):
    with pytest.raises(openpgp.NotAKey):
        openpgp.read_key(content)


@pytest.mark.parametrize("cut", range(1, 400, 37))
def test_a_truncated_key_is_refused(cut):
    key = openpgp.read_key((DATA / "signing-key-rsa2048.asc").read_bytes())

    with pytest.raises(openpgp.NotAKey):
        openpgp.read_key(key[: min(cut, 270)])


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
    interpreter = f"ansible_python_interpreter={sys.executable}"
    argv = [
        "localhost",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-o",
        "-e",
        interpreter,
        "-m",
        "gpucheck.provision.signing_key",
        "-a",
        arguments,
    ]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    ansible = str(Path(sys.executable).parent / "ansible")
    done = subprocess.run([ansible, *argv], env=environment, capture_output=True, text=True, timeout=60, check=False)
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


def test_another_key_than_the_pinned_one_is_refused_and_not_written(tmp_path, server):
    url, _ = server
    dest = tmp_path / "test.gpg"

    said = install(url=f"{url}/signing-key-ed25519.asc", dest=dest, fingerprint=KEYS["signing-key-rsa2048.asc"])

    assert said["failed"] is True
    assert KEYS["signing-key-ed25519.asc"] in str(said["msg"])
    assert "nothing was written" in str(said["msg"])
    assert not dest.exists()


RSA, EDDSA = ((DATA / name).read_bytes() for name in KEYS)
RSA_PACKETS, EDDSA_PACKETS = openpgp.read_key(RSA), openpgp.read_key(EDDSA)
BEGIN, END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"
signing_key = module("signing_key")


def given_file(tmp_path, monkeypatch, content, fingerprint=KEYS["signing-key-rsa2048.asc"]):
    """What signing_key does with this file as the publisher's, and whether it wrote one."""

    class Response:
        def read(self, count):
            return content[:count]

    monkeypatch.setattr(shared("signing_keys"), "fetch_url", lambda *_, **__: (Response(), {"status": 200}))
    dest = tmp_path / "key.gpg"
    answer = answer_of(signing_key, {"url": "https://m/key", "dest": str(dest), "fingerprint": fingerprint})
    return answer, dest.exists()


def packet(tag, body):
    """A new-format packet."""
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    "content",
    [
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
    ids=range(18),
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


PIECES = st.sampled_from([BEGIN, END, b"\n", b"\n\n", b"=AAAA\n", b"-----BEGIN PGP ", RSA, RSA_PACKETS, EDDSA_PACKETS])


@given(st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=8).map(b"".join))
def test_garbage_is_a_key_or_one_message(content):
    try:
        key = openpgp.read_key(content)
    except openpgp.NotAKey:
        return
    assert openpgp.read_key(openpgp.armor(key)) == key
    assert set(openpgp.fingerprints(key)) <= set(KEYS.values())


@given(place=st.integers(0, len(RSA_PACKETS) - 1), bit=st.integers(0, 7), put=st.binary(max_size=3))
def test_a_changed_key_never_has_the_pinned_fingerprint_with_other_key_material(place, bit, put):
    changed = RSA_PACKETS[:place] + bytes([RSA_PACKETS[place] ^ (1 << bit)]) + put + RSA_PACKETS[place + 1 :]
    try:
        found = openpgp.fingerprints(openpgp.read_key(changed))
    except openpgp.NotAKey:
        return
    primary = [body for tag, body in openpgp.packets(RSA_PACKETS) if tag == 6]
    if found == [KEYS["signing-key-rsa2048.asc"]]:
        assert [body for tag, body in openpgp.packets(changed) if tag == 6] == primary


@pytest.mark.parametrize(
    "unit",
    [BEGIN + b"\n", END + b"\n", BEGIN + END, b"\n", b"\x99\0\0", packet(13, b""), b"=", RSA_PACKETS[:272]],
    ids=["begin", "end", "blocks", "lines", "empty keys", "empty packets", "sums", "keys"],
)
@pytest.mark.parametrize("head", [b"", BEGIN + b"\n\n", RSA_PACKETS])
def test_a_mebibyte_of_anything_takes_less_than_a_second(unit, head):
    content = (head + unit * (openpgp.LARGEST_KEY_BYTES // len(unit)))[: openpgp.LARGEST_KEY_BYTES]
    before = time.process_time()
    with contextlib.suppress(openpgp.NotAKey):
        openpgp.read_key(content)
    assert time.process_time() - before < 1


def test_a_file_that_is_too_large_is_refused():
    with pytest.raises(openpgp.NotAKey, match="larger than"):
        openpgp.read_key(RSA + b"\n" * openpgp.LARGEST_KEY_BYTES)
