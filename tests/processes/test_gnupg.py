"""gpg and gpgv: keys of a file, good and bad signatures, and a host without them."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gpucheck.processes import gnupg

needs_gpg = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gpgv")), reason="gpg or gpgv is not installed"
)


@pytest.fixture(scope="module")
def keyring():
    """(home with a secret key, file with the public keyring, fingerprint)."""
    with gnupg.homes() as home, gnupg.agent(home):
        gnupg.gpg(home, "--passphrase", "", "--quick-gen-key", "test", "rsa2048", "sign", "never")
        ring = home / "ring.gpg"
        gnupg.gpg(home, "--output", ring, "--export")
        listing = gnupg.gpg(home, "--with-colons", "--show-keys", ring).stdout.decode()
        (fingerprint,) = gnupg.primary_fingerprints(listing)
        yield home, ring, fingerprint
    assert not home.exists()


def signed(home, content):
    """A clear-signed message."""
    (home / "text").write_bytes(content)
    gnupg.gpg(home, "--clearsign", "--output", home / "signed", home / "text")
    return home / "signed"


@needs_gpg
def test_good_signature_names_the_primary_key_and_returns_the_text(keyring):
    home, ring, fingerprint = keyring
    done = gnupg.verify(ring, "--output", "-", signed(home, b"Origin: test\n"))

    assert (done.key, done.text, done.bad) == (fingerprint, b"Origin: test\n", None)


@needs_gpg
@pytest.mark.parametrize(
    ("change", "bad"), [((b"test", b"TEST"), "BADSIG"), ((b"BEGIN PGP SIG", b"BEGIN PGP GIS"), None)]
)
def test_changed_message_has_no_key(keyring, change, bad):
    home, ring, _ = keyring
    path = signed(home, b"Origin: test\n")
    path.write_bytes(path.read_bytes().replace(*change))
    done = gnupg.verify(ring, "--output", "-", path)

    assert (done.key, done.bad) == (None, bad)


@needs_gpg
def test_signature_of_a_key_outside_the_keyring_has_no_key(keyring):
    _, ring, fingerprint = keyring
    with gnupg.homes() as other, gnupg.agent(other):
        gnupg.gpg(other, "--passphrase", "", "--quick-gen-key", "other", "rsa2048", "sign", "never")
        done = gnupg.verify(ring, "--output", "-", signed(other, b"x\n"))

    assert done.key is None
    assert done.statuses["NO_PUBKEY"][-1] not in fingerprint


@pytest.mark.parametrize(
    ("content", "single"),
    [
        (gnupg.MESSAGE + b"\n\nx\n" + gnupg.SIGNATURE, True),
        (b"\n" + gnupg.MESSAGE + b"\n\nx\n" + gnupg.SIGNATURE, False),
        (2 * (gnupg.MESSAGE + b"\n\nx\n" + gnupg.SIGNATURE), False),
        (b"Origin: x\n", False),
        (b"", False),
    ],
)
def test_text_outside_of_a_message_is_not_signed(content, single):
    assert gnupg.is_single_message(content) is single


@pytest.mark.parametrize("listing", ["", "pub:", "pub:u:2048\nfpr:", "tru::1\n"])
def test_listing_without_a_fingerprint_has_none(listing):
    assert gnupg.primary_fingerprints(listing) == []


def test_missing_programs_are_named_with_their_package(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(gnupg.NotInstalledError, match=r"gpg is not installed on this machine\. Install gnupg"):
        gnupg.gpg(tmp_path, "--version")
    with pytest.raises(gnupg.NotInstalledError, match="gpgv is not installed") as refused, gnupg.homes():
        gnupg.verify(tmp_path / "ring", tmp_path / "x")
    assert refused.value.program == "gpgv"


def test_program_that_does_not_exit_is_ended(monkeypatch, tmp_path):
    (tmp_path / "gpgv").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "gpgv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(gnupg.HungError, match=r"gpgv did not end within 0.2 s"):
        gnupg.verify(tmp_path / "ring", tmp_path / "x", seconds=0.2)


SLOW_AGENT = f"""#!{sys.executable}
import socket, sys, time
one = socket.socket(socket.AF_UNIX)
one.bind(sys.argv[2] + "/S.gpg-agent")
time.sleep(0.5)
one.listen()
time.sleep(60)
"""


def test_an_agent_is_ready_once_it_accepts_connections(monkeypatch, tmp_path):
    """Its socket is there a moment before; gpg then finds no agent, and no key is made."""
    (tmp_path / "gpg-agent").write_text(SLOW_AGENT)
    (tmp_path / "gpg-agent").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with tempfile.TemporaryDirectory() as home, gnupg.agent(Path(home)), socket.socket(socket.AF_UNIX) as one:
        one.connect(f"{home}/S.gpg-agent")


KILLED = """
import time
from gpucheck.processes import gnupg
with gnupg.homes() as home, gnupg.agent(home):
    gnupg.gpg(home, "--passphrase", "", "--quick-gen-key", "test", "rsa2048", "sign", "never")
    print(home, flush=True)
    time.sleep(600)
"""


def agents_of(home):
    """Processes whose arguments name the directory."""
    done = subprocess.run(["pgrep", "--full", str(home)], check=False, capture_output=True, text=True)
    return done.stdout.split()


@needs_gpg
def test_a_secret_key_of_a_killed_run_is_removed_by_the_next_and_its_agent_ends():
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "TMPDIR": folder}
        words = [sys.executable, "-c", KILLED]
        with subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True) as running:
            home = Path(running.stdout.readline().strip())
            there = list(home.glob("private-keys-v1.d/*.key")), agents_of(home)
            running.send_signal(signal.SIGKILL)
        assert all(there)
        words = "from gpucheck.processes import gnupg\nwith gnupg.homes(): pass"
        subprocess.run([sys.executable, "-c", words], env=variables, check=True)

        assert not list(Path(folder).iterdir())
    for _ in range(600):
        if not agents_of(home):
            break
        time.sleep(0.1)
    assert not agents_of(home)


@needs_gpg
def test_public_keys_need_no_agent(keyring):
    _, ring, _ = keyring
    with gnupg.homes() as home:
        assert gnupg.gpg(home, "--import", ring).returncode == 0
        assert not (home / gnupg.SOCKET).exists()
