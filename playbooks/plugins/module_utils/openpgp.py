"""Fingerprints of OpenPGP public keys without gpg: a minimal host has only apt's own verifier.

Source: RFC 9580 (packet headers 4.2, v4 fingerprint 5.5.4.2, v6 fingerprint 5.5.4.3, ASCII armor 6).
"""

import base64
import binascii
import hashlib
import re
import struct

PUBLIC_KEY = 6
ARMOR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)


class NotAKey(ValueError):
    """The bytes are no OpenPGP public key; the message says why."""


def read_key(content):
    """The binary key of an armored or binary key file. Raises NotAKey."""
    armored = ARMOR.search(content)
    if armored is None:
        if content[:1] and content[0] & 0x80:
            return content
        raise NotAKey("neither an armored nor a binary OpenPGP key")
    # Header lines end at the first empty line; a line that starts with = is the checksum.
    _, _, body = armored.group(1).replace(b"\r", b"").partition(b"\n\n")
    lines = [line for line in body.split(b"\n") if line and not line.startswith(b"=")]
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except binascii.Error as error:
        raise NotAKey("damaged armor: {}".format(error))


def fingerprint(key):
    """Upper-case hex fingerprint of the first, primary key packet. Raises NotAKey."""
    body = first_packet(key)
    if body[:1] == b"\x04":
        return hashlib.sha1(b"\x99" + struct.pack(">H", len(body)) + body).hexdigest().upper()  # noqa: S324
    if body[:1] == b"\x06":
        return hashlib.sha256(b"\x9b" + struct.pack(">I", len(body)) + body).hexdigest().upper()
    raise NotAKey("a key of a version other than 4 and 6")


def first_packet(key):
    """Body of the first packet, which has to be a public key. Raises NotAKey."""
    try:
        head = key[0]
        if head & 0x40:
            tag, (start, length) = head & 0x3F, new_length(key)
        else:
            tag, size = (head >> 2) & 0x0F, 1 << (head & 0x03)
            if size > 4:
                raise NotAKey("a packet of indeterminate length")
            start, length = 1 + size, int.from_bytes(key[1 : 1 + size], "big")
    except IndexError:
        raise NotAKey("it ends in the middle of a packet header")
    if tag != PUBLIC_KEY:
        raise NotAKey("its first packet is of type {}, not a public key".format(tag))
    if len(key) < start + length:
        raise NotAKey("it ends in the middle of the key")
    return key[start : start + length]


def new_length(key):
    """(start of the body, its length) of a new-format packet."""
    first = key[1]
    if first < 192:
        return 2, first
    if first < 224:
        return 3, ((first - 192) << 8) + key[2] + 192
    if first == 255:
        return 6, int.from_bytes(key[2:6], "big")
    raise NotAKey("a public key in partial lengths")
