"""What was verified is what is used: bundles that change, of old and revoked keys, with hostile names."""

import ctypes
import json
import os
import threading
from pathlib import Path

import msgspec
import pytest

from gpucheck.bundle import folder, signing
from gpucheck.bundle.contents import (
    KEY,
    MANIFEST,
    SIGNATURE,
    BundleDamaged,
    BundledFile,
    BundleError,
    read_manifest,
    write_manifest,
)
from gpucheck.bundle.folder import described, signed, take, verify
from gpucheck.processes import gnupg
from tests.bundle.collecting import new_key
from tests.bundle.site import WHEEL, manifest
from tests.shared import END_S

APT = "ubuntu-22.04-x86_64-15f8x2"
SYSTEM = "ubuntu-22.04-x86_64"
FILES = {
    f"{SYSTEM}/packages/a.deb": b"package",
    f"{SYSTEM}/wheels/{WHEEL.name}": b"wheel",
    "requirements.lock": b"click==8.5.1",
    "stack.lock.yml": b"lock",
}
IN_CLOSE_NOWRITE = 0x10


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """A key that signs bundles."""
    home = tmp_path_factory.mktemp("gpg")
    home.chmod(0o700)
    with gnupg.agent(home):
        yield new_key(home, "site")


def bundle(folder, key, *options, files=FILES, **changes):
    """A bundle in the directory, signed with the key. options: of gpg."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    key.public(folder / KEY)
    listed = {name: described(folder / name) for name in (*files, KEY)}
    changes = {"key": key.fingerprint, "files": listed, **changes}
    (folder / MANIFEST).write_bytes(write_manifest(manifest("lab-apt", **changes)))
    key.sign(*options, "--armor", "--detach-sign", "--output", folder / SIGNATURE, folder / MANIFEST)
    return folder


def test_a_site_gets_a_copy_and_lists_that_name_only_the_copy(key, tmp_path):
    medium, site = bundle(tmp_path / "medium", key), tmp_path / "site"
    take(medium, site, key.fingerprint)
    for name in FILES:
        (medium / name).write_bytes(b"changed after it was verified")

    rows = json.loads((site / f"{APT}.json").read_text())
    assert set(rows) == {"packages/a.deb", f"wheels/{WHEEL.name}", "key.asc"}
    for row in rows.values():
        assert describes(row)
    assert {path.name for path in (site / "bundle").iterdir()} == {
        *(MANIFEST, SIGNATURE, KEY, "stack.lock.yml", "requirements.lock", WHEEL.name)
    }
    assert (site / "bundle" / WHEEL.name).read_bytes() == b"wheel"
    assert signed(site / "bundle", key.fingerprint).manifest.groups.keys() == {APT}
    assert (site / "files").stat().st_mode & 0o777 == 0o700


def describes(row):
    """Whether the file that a row names is the one that it describes."""
    path = Path(row["source"])
    return "site/files" in row["source"] and msgspec.to_builtins(described(path)) == {
        "sha256": row["sha256"],
        "bytes": row["bytes"],
    }


def test_copies_of_earlier_bundles_and_killed_runs_are_removed(key, tmp_path):
    site = tmp_path / "site"
    take(bundle(tmp_path / "one", key), site)
    (site / "files/.gpucheck.0123").write_bytes(b"left by a killed run")
    more = {**FILES, f"{SYSTEM}/packages/a.deb": b"another"}
    found = take(bundle(tmp_path / "two", key, files=more), site)

    assert {path.name for path in (site / "files").iterdir()} == {file.sha256 for file in found.files.values()}


def test_a_medium_that_shows_the_signed_manifest_only_to_gpg_is_refused(key, tmp_path):
    """The changed manifest is read first; when it was closed, the signed one takes its place."""
    medium = bundle(tmp_path / "medium", key)
    original = (medium / MANIFEST).read_bytes()
    wheel = f"{SYSTEM}/wheels/{WHEEL.name}"
    (medium / wheel).write_bytes(b"EVIL")
    listed = {**read_manifest(original, MANIFEST).files, wheel: described(medium / wheel)}
    (medium / MANIFEST).write_bytes(write_manifest(manifest("lab-apt", key=key.fingerprint, files=listed)))
    library = ctypes.CDLL(None)
    watch = library.inotify_init()
    if watch < 0:
        pytest.skip("other programs of this user hold all inotify instances (fs.inotify.max_user_instances)")
    library.inotify_add_watch(watch, os.fsencode(medium / MANIFEST), IN_CLOSE_NOWRITE)

    def exchange():
        os.read(watch, 4096)
        (medium / "new").write_bytes(original)
        (medium / "new").rename(medium / MANIFEST)

    exchanging = threading.Thread(target=exchange, daemon=True)
    exchanging.start()
    with pytest.raises(BundleDamaged, match="does not match"):
        verify(medium, key.fingerprint)
    exchanging.join(END_S)
    assert (medium / MANIFEST).read_bytes() == original


def test_a_file_that_changes_while_it_is_copied_is_not_kept(key, tmp_path, monkeypatch):
    """Its size stays; the bytes that are compared are the ones that are written."""
    from gpucheck.bundle import folder as module

    medium, site = bundle(tmp_path / "medium", key), tmp_path / "site"
    monkeypatch.setattr(module, "PIECE_BYTES", 3)
    package = medium / f"{SYSTEM}/packages/a.deb"
    real = module._digested

    def changing(file, copy, most=None):
        if os.path.samestat(os.fstat(file.fileno()), package.stat()):
            package.write_bytes(b"pacEVIL")
        return real(file, copy, most)

    monkeypatch.setattr(module, "_digested", changing)
    with pytest.raises(BundleDamaged, match=r"a\.deb was changed"):
        take(medium, site)
    kept = [path.read_bytes() for path in (site / "files").iterdir()]
    assert b"pacEVIL" not in kept
    assert len(kept) == 4


@pytest.mark.parametrize("name", [MANIFEST, SIGNATURE, KEY, f"{SYSTEM}/packages/a.deb"])
@pytest.mark.parametrize("kind", ["fifo", "sparse", "directory"])
def test_what_is_no_file_of_a_usual_size_ends_in_one_line(key, tmp_path, name, kind):
    """A FIFO is not waited for, and six gigabytes are not read."""
    medium = bundle(tmp_path / "medium", key)
    (medium / name).unlink()
    if kind == "fifo":
        os.mkfifo(medium / name)
    elif kind == "directory":
        (medium / name).mkdir()
    else:
        with (medium / name).open("wb") as file:
            file.truncate(6 << 30)

    with pytest.raises(BundleError, match=r"FIFO|larger than|directory|not a regular|was changed|is missing") as error:
        verify(medium)
    assert "\n" not in str(error.value)


def test_a_signature_of_an_expired_or_revoked_key_is_refused(tmp_path):
    home = tmp_path / "gpg"
    home.mkdir(mode=0o700)
    with gnupg.agent(home):
        then = ("--faked-system-time", "20240101T000000")
        old, revoked = new_key(home, "old", *then, expires="30d"), new_key(home, "revoked")
        expired = bundle(tmp_path / "expired", old, "--faked-system-time", "20240105T000000")
        certificate = (home / f"openpgp-revocs.d/{revoked.fingerprint}.rev").read_text().replace(":-----", "-----")
        (tmp_path / "revocation").write_text(certificate)
        folder = bundle(tmp_path / "revoked", revoked)
        assert verify(folder).manifest.key == revoked.fingerprint
        gnupg.gpg(home, "--import", tmp_path / "revocation")
        revoked.public(folder / KEY)

    with pytest.raises(BundleDamaged, match="the signing key has expired"):
        verify(expired, old.fingerprint)
    with pytest.raises(BundleDamaged, match="the signing key was revoked"):
        verify(folder, revoked.fingerprint)


def test_a_key_file_of_several_keys_is_refused(key, tmp_path):
    medium = bundle(tmp_path / "medium", key)
    other = new_key(key.home, "second")
    (medium / KEY).write_text(
        (medium / KEY).read_text() + gnupg.gpg(key.home, "--armor", "--export", other.fingerprint).stdout.decode()
    )

    with pytest.raises(BundleDamaged, match=r"key\.asc contains 2 keys"):
        verify(medium, key.fingerprint)


def test_an_older_bundle_is_refused_unless_it_is_accepted(key, tmp_path):
    site = tmp_path / "site"
    new = bundle(tmp_path / "new", key, made="2026-11-21T00:00:00+00:00")
    old = bundle(tmp_path / "old", key, made="2026-10-01T00:00:00+00:00")
    take(new, site)
    before = (site / "bundle" / MANIFEST).read_bytes()

    with pytest.raises(
        BundleError, match=r"made 2026-10-01.*has had one that was made 2026-11-21.*bundle_accept_older"
    ):
        take(old, site)
    assert (site / "bundle" / MANIFEST).read_bytes() == before
    assert take(new, site).made == "2026-11-21T00:00:00+00:00"
    assert take(old, site, accept_older=True).made == "2026-10-01T00:00:00+00:00"


def test_another_group_may_have_its_own_older_bundle(key, tmp_path):
    take(bundle(tmp_path / "new", key, made="2026-11-21T00:00:00+00:00"), tmp_path / "site")
    other = manifest("lab-dnf")
    rows = {"groups": other.groups, "systems": other.systems}

    assert take(bundle(tmp_path / "old", key, made="2026-10-01T00:00:00+00:00", **rows), tmp_path / "site").groups


HOSTILE_NAMES = ["../../../../etc/cron.d/x", "/etc/x", "a/b", "-o", ".", "..", "a\nb", "x" * 300, "", "\x1b[2K"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_in_a_manifest_are_plain(name):
    """Without a fingerprint anybody may have signed it: groups, systems and the wheel become paths here."""
    good = manifest("lab-apt")
    ((group, row),), ((_, system),) = good.groups.items(), good.systems.items()
    wheel = msgspec.structs.replace(good.wheel, name=name)
    for changes in ({"groups": {name: row}}, {"systems": {name: system}}, {"wheel": wheel}):
        content = write_manifest(msgspec.structs.replace(good, **changes))
        with pytest.raises(BundleError, match="not a manifest of a bundle"):
            read_manifest(content, MANIFEST)
    assert group in good.groups


@pytest.mark.parametrize("digest", ["", "../../x", "AB" * 32, "0" * 63, "0" * 64 + "\n"])
def test_digests_in_a_manifest_are_digests(digest):
    """A copy is named by its digest."""
    content = write_manifest(manifest("lab-apt", files={"a": BundledFile(sha256=digest, bytes=1)}))
    with pytest.raises(BundleError, match="not a manifest of a bundle"):
        read_manifest(content, MANIFEST)


@pytest.mark.parametrize("place", [".", "files", "bundle"])
@pytest.mark.parametrize("kind", ["another user's", "a link", "everybody's"])
def test_copies_are_kept_only_where_no_other_user_may_leave_some(key, tmp_path, place, kind):
    """A copy that exists is not written again, and what is not part of the bundle is removed."""
    medium, site = bundle(tmp_path / "medium", key), tmp_path / "site"
    take(medium, site, key.fingerprint)
    victim = tmp_path / "victim"
    if kind == "another user's":
        if os.geteuid() != 0:
            pytest.skip("only root can make it")
        os.chown(site / place, 65534, 65534)
    elif kind == "everybody's":
        (site / place).chmod(0o777)
    else:
        victim.mkdir()
        (victim / "precious").touch()
        (site / place).rename(tmp_path / "aside")
        (site / place).symlink_to(victim)

    with pytest.raises(BundleError, match="is not a directory of this user"):
        take(medium, site, key.fingerprint)
    assert kind != "a link" or (victim / "precious").exists()


@pytest.mark.parametrize("damage", [b"", b"EVIL-package", b"pakcage"])
def test_a_copy_that_a_loss_of_power_damaged_is_made_again(key, tmp_path, damage):
    medium, site = bundle(tmp_path / "medium", key), tmp_path / "site"
    take(medium, site, key.fingerprint)
    package = json.loads((site / f"{APT}.json").read_text())["packages/a.deb"]["source"]
    Path(package).write_bytes(damage)

    take(medium, site, key.fingerprint)

    assert Path(package).read_bytes() == b"package"


def test_a_medium_with_more_or_deeper_directories_than_a_bundle_ends_in_one_line(key, tmp_path, monkeypatch):
    deep, many = (bundle(tmp_path / name, key) for name in ("deep", "many"))
    (deep / "/".join("d" * 20)).mkdir(parents=True)
    with pytest.raises(BundleDamaged, match="more than 16 levels"):
        verify(deep)
    monkeypatch.setattr(folder, "MOST_ENTRIES", 5)
    with pytest.raises(BundleDamaged, match="more than 5 files"):
        verify(many)


def test_the_record_of_what_was_taken_has_the_name_of_no_group(key, tmp_path):
    groups = {"taken": next(iter(manifest("lab-apt").groups.values()))}
    take(bundle(tmp_path / "medium", key, groups=groups), tmp_path / "site", key.fingerprint)

    assert "packages/a.deb" in json.loads((tmp_path / "site/taken.json").read_text())


def test_a_bundle_of_a_machine_whose_clock_is_ahead_names_the_clock():
    """A site without a network has no time server either, and making the bundle again would have changed nothing."""
    later = "20400101T000000"
    with gnupg.homes() as home, gnupg.agent(home):
        manifest, signature = home / "m", home / "m.asc"
        manifest.write_bytes(b"{}")
        words: tuple[tuple[str | Path, ...], ...] = (
            ("--passphrase", "", "--quick-gen-key", "gpucheck bundle", "rsa3072", "sign", "never"),
            ("--armor", "--detach-sign", "--output", signature, manifest),
            ("--armor", "--export"),
        )
        key = [gnupg.gpg(home, "--faked-system-time", later, *some).stdout for some in words][-1]
        proof = {MANIFEST: b"{}", SIGNATURE: signature.read_bytes(), KEY: key}

    with pytest.raises(BundleDamaged, match=r"site/bundle: its signature was made 2040-01-01 00:00 UTC, which"):
        signing.verified(proof, "site/bundle")
