"""Two keys of which gpg said the fingerprints, and what packets are made of."""

from pathlib import Path

from tests.playbooks.modules import shared

openpgp = shared("openpgp")
DATA = Path(__file__).parent / "data"
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
