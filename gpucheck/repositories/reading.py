"""Read the index of a planned repository: fetch, verify the signature and the checksums, parse."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from gpucheck.foreign import UnreadableInput, unpacked_pieces
from gpucheck.processes import gnupg
from gpucheck.repositories import apt, dnf
from gpucheck.repositories.fetching import Fetch, NotThere, place_of, without_credentials
from gpucheck.repositories.index import Index, Package, UnusableIndex

Row = Mapping[str, str | None]
MOST_KEY, MOST_RELEASE = 1 << 20, 16 << 20
# Debian's main list is 50 MiB, EPEL's 20 MiB compressed and 200 MiB unpacked (2026).
MOST_LIST, MOST_UNPACKED = 256 << 20, 512 << 20
# What the plan calls an architecture -> what the package managers do.
ARCHITECTURES = {"apt": {"x86_64": "amd64", "sbsa": "arm64"}, "dnf": {"x86_64": "x86_64", "sbsa": "aarch64"}}
SYNCHRONIZE = "Synchronize the mirror again"
_DIST_TAG = re.compile(r"\.el(\d+)(?:_\d+)?$")


def read_index(row: Row, arch: str, fetch: Fetch, now: datetime) -> Index:
    """Return the packages of one repository of a plan. arch: x86_64 or sbsa.

    Raises UnusableIndex: rejected if it was read and is cut off, changed, unsigned, expired or of another architecture.
    """
    url = row["url"] or ""
    if not url:
        raise UnusableIndex("the plan has no address of it", "Set its url in stack.yml", rejected=False)
    base = url if url.endswith("/") else f"{url}/"
    index = _apt(row, base, arch, fetch, now) if row["kind"] == "apt" else _dnf(row, base, fetch)
    own = ARCHITECTURES[str(row["kind"])][arch]
    others = {one.arch for rows in index.packages.values() for one in rows} - {"all", "noarch"}
    if others and own not in others:
        raise UnusableIndex(f"it is for {', '.join(sorted(others))}, and the hosts are {own}", "Correct its url")
    return index


def systems_of(packages: Iterable[Package]) -> set[str]:
    """Return the EL releases, as ``el9``, that the release tags of packages name."""
    return {f"el{found[1]}" for one in packages if (found := _DIST_TAG.search(one.version))}


def _apt(row: Row, base: str, arch: str, fetch: Fetch, now: datetime) -> Index:
    suite = row.get("suite") or "/"
    flat = suite.endswith("/")
    place = base + (suite.lstrip("/") if flat else f"dists/{suite}/")
    with keyring(row, fetch) as keys:
        try:
            text, signer = _verified(keys, fetch(f"{place}InRelease", MOST_RELEASE))
        except NotThere:
            text = fetch(f"{place}Release", MOST_RELEASE)
            _, signer = _verified(keys, text, _signature(fetch, f"{place}Release.gpg"))
    release = apt.read_release(text.decode("utf-8", "replace"), now, "" if flat else suite)
    dpkg_arch = ARCHITECTURES["apt"][arch]
    packages: dict[str, tuple[Package, ...]] = {}
    for component in (row.get("components") or "").split() or ([""] if flat else ["main"]):
        listed = apt.package_list(release, component, dpkg_arch)
        content = fetch(place + listed.name, MOST_LIST)
        if len(content) != listed.size or not listed.checksum.matches(content):
            raise _changed(listed.name, len(content), listed.size)
        found = apt.read_packages(apt.lines_of(_unpacked(content, listed.name)))
        packages |= {name: (*packages.get(name, ()), *rows) for name, rows in found.items()}
    return Index("apt", packages, release.date, signer)


def _dnf(row: Row, base: str, fetch: Fetch) -> Index:
    content = fetch(f"{base}repodata/repomd.xml", MOST_RELEASE)
    signer = None
    if row.get("signed") in ("metadata", "both"):
        with keyring(row, fetch) as keys:
            _, signer = _verified(keys, content, _signature(fetch, f"{base}repodata/repomd.xml.asc"))
    primary = dnf.read_repomd(content)
    # A list below the repository: of a mirror in a directory, "../" would be any file of this machine.
    place_of(base + primary.location)
    packed = fetch(base + primary.location, MOST_LIST)
    if not primary.checksum.matches(packed):
        raise _changed(primary.location, len(packed), None)
    return Index("dnf", dnf.read_primary(_unpacked(packed, primary.location)), primary.made, signer)


def _signature(fetch: Fetch, url: str) -> bytes:
    try:
        return fetch(url, MOST_KEY)
    except NotThere:
        raise UnusableIndex(
            f"it is not signed: there is no {without_credentials(url)}",
            "Mirror the signature as well; a mirror with its own key needs key_url and key_fingerprint in stack.yml. "
            "For a dnf mirror without one, set signed: packages",
        ) from None


def _changed(name: str, size: int, expected: int | None) -> UnusableIndex:
    if expected is not None and size < expected:
        return UnusableIndex(f"{name} is cut off: {size} of {expected} bytes", SYNCHRONIZE)
    return UnusableIndex(f"{name} is not the file that the signed index names: its checksum differs", SYNCHRONIZE)


def _unpacked(content: bytes, name: str) -> Iterator[bytes]:
    try:
        yield from unpacked_pieces(content, MOST_UNPACKED, name, SYNCHRONIZE)
    except UnreadableInput as error:
        raise UnusableIndex(f"{name}: {error.what}", SYNCHRONIZE) from None


SECONDS = 60


def _verified(keys: Path, content: bytes, signature: bytes | None = None) -> tuple[bytes, str]:
    """Return (the signed text, fingerprint of the key). keys: of ``keyring``. Raises UnusableIndex.

    signature: a detached one; without it the content is clear-signed.
    """
    signed, detached = keys.with_name("signed"), keys.with_name("signature")
    signed.write_bytes(content)
    if signature is not None:
        detached.write_bytes(signature)
    elif not gnupg.is_single_message(content):
        raise UnusableIndex("InRelease is not one signed message", "Do not trust this mirror; synchronize it again")
    with _usable():
        arguments = ("--output", "-", signed) if signature is None else (detached, signed)
        done = gnupg.verify(keys, *arguments, seconds=SECONDS)
    if done.key is not None:
        return done.text if signature is None else content, done.key
    if "NO_PUBKEY" in done.statuses and not done.bad:
        reason = f"signed with key {done.statuses['NO_PUBKEY'][-1]}, which is not the pinned one"
    else:
        reason = gnupg.BAD.get(done.bad or "", "there is no valid signature")
    raise UnusableIndex(reason, "Do not install from it. Synchronize the mirror again, or compare with its publisher")


@contextmanager
def keyring(row: Row, fetch: Fetch) -> Iterator[Path]:
    """A keyring with the keys of a repository's file, which must all be pinned, by fingerprint or digest.

    Raises UnusableIndex, also if gpg is not installed.
    """
    if not row["key_url"]:
        raise UnusableIndex("the plan has no key of it", "Set its key_url and key_fingerprint in stack.yml")
    key, where = fetch(row["key_url"], MOST_KEY), without_credentials(row["key_url"])
    with gnupg.homes() as home:
        file = home / "key"
        file.write_bytes(key)
        pins = re.sub(r"\s", "", row["key_fingerprint"] or "").upper().split(",")
        found, digest = _fingerprints(home, file), gnupg.key_digest(key)
        if not found:
            raise UnusableIndex(f"{where} holds no OpenPGP key", "Correct key_url of the repository")
        foreign = [one for one in found if one not in pins] if f"SHA256:{digest.upper()}" not in pins else []
        if foreign:
            raise UnusableIndex(
                f"{where} holds key {', '.join(foreign)}; pinned is {', '.join(pins)}",
                "Do not trust it. If the publisher changed the key, compare the new fingerprint with the publisher's "
                "own page and set key_fingerprint in stack.yml",
            )
        ring = home / "pinned.gpg"
        # gpg without its agent, as on minimal hosts, imports the key and exits with 2: the result counts.
        with _usable():
            imported = gnupg.gpg(home, "--import", file, seconds=SECONDS)
            gnupg.gpg(home, "--output", ring, "--export", seconds=SECONDS)
        if not ring.is_file() or not ring.stat().st_size:
            reason = imported.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise UnusableIndex(
                f"gpg on this machine cannot use the key {where}: {reason[0]}", "Compare the key with its publisher's"
            )
        yield ring


def _fingerprints(home: Path, file: Path) -> list[str]:
    with _usable():
        done = gnupg.gpg(home, "--with-colons", "--show-keys", file, seconds=SECONDS)
    return gnupg.primary_fingerprints(done.stdout.decode("utf-8", "replace"))


@contextmanager
def _usable() -> Iterator[None]:
    """Raise UnusableIndex, without rejecting the index, if GnuPG cannot run here."""
    try:
        yield
    except gnupg.NotInstalledError as error:
        what = f"{error.program} is not installed on this machine, so no signature can be verified"
        raise UnusableIndex(what, f"Install {error.package}", rejected=False) from None
    except gnupg.HungError as error:
        raise UnusableIndex(str(error), "Try again", rejected=False) from None
