"""The order of package versions, as dpkg and rpm define it.

Sources: deb-version(7), and rpm's own description of rpmvercmp in rpm-version(7).
"""

import re
from collections.abc import Callable
from functools import cmp_to_key
from itertools import zip_longest

_DEB = re.compile(r"([^0-9]*)([0-9]*)")
_RPM = re.compile(r"[0-9]+|[a-zA-Z]+|~|\^")
END = 0


def deb_key(version: str) -> tuple[object, ...]:
    """Return what sorts Debian versions: ``580.95.05-0ubuntu1``, ``1:3.3.0-1``."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-")
    if not upstream:
        upstream, revision = revision, ""
    return (_number(epoch), _deb_part(upstream), _deb_part(revision or "0"))


def _deb_part(part: str) -> tuple[object, ...]:
    """Alternating text and numbers, ended by a text that sorts after ~ and before everything else."""
    found: list[object] = []
    for text, number in _DEB.findall(part):
        found.append((*map(_deb_order, text), END))
        found.append(_number(number))
    return tuple(found)


def _number(digits: str) -> tuple[int, str]:
    """Return what sorts numbers of any length; int rejects those of thousands of digits."""
    plain = digits.lstrip("0")
    return len(plain), plain


def _deb_order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def rpm_compare(a: str, b: str) -> int:
    """Compare ``epoch:version-release`` of two rpm packages: negative, 0 or positive. No epoch is epoch 0.

    A version without a release equals every release of it, as in a dependency.
    """
    epoch_a, version_a, release_a = rpm_parts(a)
    epoch_b, version_b, release_b = rpm_parts(b)
    order = (epoch_a > epoch_b) - (epoch_a < epoch_b) or _rpm_order(version_a, version_b)
    return order or (_rpm_order(release_a, release_b) if release_a and release_b else 0)


def rpm_parts(version: str) -> tuple[int, str, str]:
    """Return (epoch, version, release); an absent release is empty."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, release = rest.rpartition("-")
    return (int(epoch[:9]) if epoch.isdecimal() else 0, *((upstream, release) if dash else (rest, "")))


def _rpm_order(a: str, b: str) -> int:
    for one, other in zip_longest(_RPM.findall(a), _RPM.findall(b), fillvalue=""):
        if one == other:
            continue
        for mark, sign in (("~", -1), ("^", 1)):
            # Tilde sorts before the end of the version; caret after the end, before any other segment.
            if mark in (one, other):
                if mark == "^" and one and other:
                    sign = -1
                return sign if one == mark else -sign
        if not one or not other:
            return 1 if one else -1
        if one.isdigit() != other.isdigit():
            return 1 if one.isdigit() else -1
        left, right = (_number(one), _number(other)) if one.isdigit() else ((0, one), (0, other))
        if left != right:
            return 1 if left > right else -1
    return 0


def deb_compare(a: str, b: str) -> int:
    """Compare two Debian versions: negative, 0 or positive."""
    left, right = deb_key(a), deb_key(b)
    return (left > right) - (left < right)


def compare_of(kind: str) -> Callable[[str, str], int]:
    """Return the comparison of a kind of repository: apt or dnf."""
    return deb_compare if kind == "apt" else rpm_compare


def newest_first(versions: set[str], kind: str) -> list[str]:
    """Sort versions, the newest first."""
    return sorted(versions, key=cmp_to_key(compare_of(kind)), reverse=True)
