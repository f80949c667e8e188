"""Keys as the hosts read them, without gpg: what gpg makes, what is no key, and anything else."""

import shutil
import subprocess

import pytest

from tests.playbooks.signing_keys import DATA, KEYS, RSA, RSA_PACKETS, openpgp


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
