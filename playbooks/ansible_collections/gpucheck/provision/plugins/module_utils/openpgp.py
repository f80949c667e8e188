"""OpenPGP public keys without gpg: a minimal host has only apt's own verifier.

A key file is read strictly, because a package manager trusts every key that a file holds: one armored block or binary
packets, and nothing but public keys and what belongs to them. Time is linear in the size of the input.

Source: RFC 9580 (packet headers 4.2, v4 fingerprint 5.5.4.2, v6 fingerprint 5.5.4.3, ASCII armor 6).
"""

import base64
import binascii
import contextlib
import hashlib
import struct

LARGEST_KEY_BYTES = 1 << 20
BEGIN, END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"
ANY_BLOCK = b"-----BEGIN PGP "
PUBLIC_KEY = 6
# Signature, trust (written by old gpg), user ID, public subkey, user attribute: what follows a public key.
PARTS = frozenset([2, 12, 13, 14, 17])
LONGEST_V4_KEY = 0xFFFF


class NotAKey(ValueError):
    """The bytes are not one OpenPGP public key file; the message has the reason."""


def read_key(content):
    """The binary packets of an armored or binary key file, all of them checked. Raises NotAKey."""
    if len(content) > LARGEST_KEY_BYTES:
        raise NotAKey(f"larger than {LARGEST_KEY_BYTES} bytes")
    key = dearmored(content) if ANY_BLOCK in content else content
    if not key[:1] or not key[0] & 0x80:
        raise NotAKey("neither an armored nor a binary OpenPGP key")
    fingerprints(key)
    return key


def dearmored(content):
    """The bytes in the one armored block of a file. Raises NotAKey."""
    if content.count(ANY_BLOCK) != 1:
        raise NotAKey(f"it holds {content.count(ANY_BLOCK)} armored blocks, expected one")
    before, begin, rest = content.partition(BEGIN)
    block, end, after = rest.partition(END)
    if not begin or not end:
        raise NotAKey("its armored block is not a complete public key block")
    if any(byte > 0x7E or (byte < 0x20 and byte not in b"\t\r\n") for byte in before + after):
        raise NotAKey("it holds binary data next to its armored block")
    lines = [line.strip() for line in block.split(b"\n")]
    if lines[0] or b"" not in lines[1:]:
        raise NotAKey("damaged armor: no empty line before the data")
    # Header lines end at the first empty line; a line that starts with = is the checksum.
    body = [line for line in lines[lines.index(b"", 1) + 1 :] if line]
    sums = [line for line in body if line.startswith(b"=")]
    if len(sums) > 1 or (sums and body[-1] != sums[0]):
        raise NotAKey("damaged armor: data after the checksum")
    try:
        key = base64.b64decode(b"".join(body[: len(body) - len(sums)]), validate=True)
        good = not sums or base64.b64decode(sums[0][1:], validate=True) == crc24(key).to_bytes(3, "big")
    except binascii.Error as error:
        raise NotAKey(f"damaged armor: {error}")
    if not good:
        raise NotAKey("damaged armor: its checksum does not fit")
    return key


def digest(content):
    """``SHA256:...`` of a key file as NVIDIA's images pin it: without lines of the armor that begin with Version."""
    lines = content.splitlines(keepends=True)
    plain = b"".join(line for line in lines if not line.startswith(b"Version"))
    return "SHA256:" + hashlib.sha256(plain).hexdigest().upper()


def armor(key):
    """The key in ASCII armor, as rpm expects it; apt expects it binary."""
    body = base64.b64encode(key).decode("ascii")
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    checksum = "=" + base64.b64encode(crc24(key).to_bytes(3, "big")).decode("ascii")
    return "\n".join([BEGIN.decode("ascii"), "", *lines, checksum, END.decode("ascii"), ""]).encode("ascii")


def crc24(content):
    """The armor checksum of RFC 9580, 6.1: optional there, but the gpg that rpm runs requires it."""
    crc = 0xB704CE
    for byte in content:
        crc ^= byte << 16
        for _ in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc


def fingerprints(key):
    """Upper-case hex fingerprints of all primary keys, in the order of the file; never empty. Raises NotAKey."""
    found = []
    for tag, body in packets(key):
        if tag == PUBLIC_KEY:
            found.append(_fingerprint(body))
        elif tag not in PARTS:
            raise NotAKey(f"it holds a packet of type {tag}, which is not part of a public key")
        elif not found:
            raise NotAKey(f"its first packet is of type {tag}, not a public key")
    if not found:
        raise NotAKey("it holds no packet")
    return found


def _fingerprint(body):
    if body[:1] == b"\x04" and len(body) <= LONGEST_V4_KEY:
        return hashlib.sha1(b"\x99" + struct.pack(">H", len(body)) + body).hexdigest().upper()  # noqa: S324
    if body[:1] == b"\x06":
        return hashlib.sha256(b"\x9b" + struct.pack(">I", len(body)) + body).hexdigest().upper()
    raise NotAKey("a key of a version other than 4 and 6, or one too long for version 4")


def packets(key):
    """(type, body) of every packet. Raises NotAKey."""
    place = 0
    while place < len(key):
        tag, start, length = _header(key[place : place + 6])
        end = place + start + length
        if end > len(key):
            raise NotAKey("it ends in the middle of a packet")
        yield tag, key[place + start : end]
        place = end


def _header(head):
    """(type, bytes of the header, bytes of the body)."""
    if not head[0] & 0x80:
        raise NotAKey("it holds bytes that are not an OpenPGP packet")
    if head[0] & 0x40:
        tag, (start, length) = head[0] & 0x3F, _new_length(head)
    else:
        size = 1 << (head[0] & 0x03)
        if size > 4:
            raise NotAKey("a packet of indeterminate length")
        tag, start, length = (head[0] >> 2) & 0x0F, 1 + size, int.from_bytes(head[1 : 1 + size], "big")
    if len(head) < start:
        raise NotAKey("it ends in the middle of a packet header")
    return tag, start, length


def _new_length(head):
    """(bytes of the header, bytes of the body) of a new-format packet."""
    first = head[1] if len(head) > 1 else 0
    if first < 192:
        return 2, first
    if first < 224:
        return 3, ((first - 192) << 8) + (head[2] if len(head) > 2 else 0) + 192
    if first == 255:
        return 6, int.from_bytes(head[2:6], "big")
    raise NotAKey("a packet in partial lengths")


def rpm_fingerprints(descriptions):
    """Fingerprints of the keys in rpm's database. descriptions: those of all gpg-pubkey packages, as rpm prints them.

    rpm names a key by eight hex digits of its fingerprint; the description is the key itself, in armor.
    """
    found = set()
    for block in descriptions.encode("ascii", "replace").split(END)[:-1]:
        # One in another form is of no planned repository, so none of them looks for it.
        with contextlib.suppress(NotAKey):
            found.update(fingerprints(read_key(block + END)))
    return found
