"""Keys as the hosts read them, without gpg: what gpg makes, what is no key, and anything else."""

import contextlib
import shutil
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.playbooks.signing_keys import BEGIN, DATA, EDDSA_PACKETS, END, KEYS, RSA, RSA_PACKETS, openpgp, packet


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
def test_a_mebibyte_of_anything_is_read_in_linear_time(unit, head):
    content = (head + unit * (openpgp.LARGEST_KEY_BYTES // len(unit)))[: openpgp.LARGEST_KEY_BYTES]
    before = time.process_time()
    with contextlib.suppress(openpgp.NotAKey):
        openpgp.read_key(content)
    assert time.process_time() - before < 20, "quadratic work would take minutes"


def test_a_file_that_is_too_large_is_refused():
    with pytest.raises(openpgp.NotAKey, match="larger than"):
        openpgp.read_key(RSA + b"\n" * openpgp.LARGEST_KEY_BYTES)
