"""gpg and gpgv: keys of a file, good and bad signatures, and a host without them."""

import shutil

import pytest

from gpucheck.processes import gnupg

needs_gpg = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gpgv")), reason="gpg or gpgv is not installed"
)


@pytest.fixture(scope="module")
def keyring():
    """(home with a secret key, file with the public keyring, fingerprint)."""
    with gnupg.homes() as home:
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
    with gnupg.homes() as other:
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
