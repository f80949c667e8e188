"""A bundle is exactly as it was signed, or it is refused with what is wrong."""

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.bundle.contents import BundleDamaged, BundleError
from gpucheck.bundle.folder import inventory, problems, verify
from gpucheck.bundle.signing import signer
from tests.bundle.site import signed_folder

FILES = {"ubuntu-22.04-x86_64/packages/libnccl2_2.deb": b"package", "stack.lock.yml": b"lock", "empty": b""}
PACKAGE = next(iter(FILES))


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    """(folder, fingerprint) of a bundle, made once: a key costs most of a second."""
    folder = tmp_path_factory.mktemp("bundle")
    return folder, signed_folder(folder, FILES)


@pytest.fixture
def bundle(signed, tmp_path):
    """A copy of it to break."""
    return shutil.copytree(signed[0], tmp_path / "bundle", symlinks=True)


def edit(path, old, new):
    path.write_text(path.read_text().replace(old, new))


def test_a_bundle_as_it_was_signed_is_good(signed):
    folder, fingerprint = signed

    assert verify(folder).manifest.key == fingerprint
    assert verify(folder, fingerprint.lower()).manifest.key == fingerprint


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda b: (b / PACKAGE).write_bytes(b"Package"), f"{PACKAGE} was changed"),
        (lambda b: (b / PACKAGE).write_bytes(b"package "), f"{PACKAGE} was changed"),
        (lambda b: (b / PACKAGE).unlink(), f"{PACKAGE} is missing"),
        (lambda b: (b / "extra.deb").write_bytes(b""), "extra.deb is not part of it"),
        (lambda b: (b / "empty").unlink() or (b / "empty").symlink_to("/dev/null"), "empty is not a regular file"),
        (lambda b: (b / "there").symlink_to("/etc"), "there is not part of it"),
        (lambda b: (b / "bundle.json.asc").unlink(), "bundle.json.asc is missing"),
        (lambda b: (b / "key.asc").unlink(), "key.asc is missing"),
        (lambda b: (b / "key.asc").write_text("no key"), "the signature of bundle.json is invalid"),
        # Although every file fits it.
        (lambda b: edit(b / "bundle.json", "2026-11-21T", "2026-11-22T"), "the signature of bundle.json is invalid"),
    ],
)
def test_what_was_changed_taken_away_or_added_is_named(bundle, damage, words):
    damage(bundle)

    with pytest.raises(BundleDamaged) as told:
        verify(bundle)
    assert words in str(told.value)
    assert str(bundle) in str(told.value)


def test_a_bundle_signed_anew_by_another_key_is_refused_where_the_key_is_known(signed, tmp_path):
    """Whoever changes a package can sign again; only the fingerprint that was told beforehand gives them away."""
    folder = tmp_path / "other"
    other = signed_folder(folder, {**FILES, PACKAGE: b"malice"})

    assert verify(folder).manifest.key == other
    with pytest.raises(BundleDamaged, match=f"signed with key {other}, expected {signed[1]}"):
        verify(folder, signed[1])


def test_a_key_that_is_nowhere_is_named():
    with pytest.raises(BundleError, match=r"BUNDLE_KEY=nobody@example\.org: not a secret key of your keyring"):
        signer("nobody@example.org").__enter__()


@settings(deadline=None, max_examples=50)
@given(
    contents=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.binary(max_size=8), min_size=1), data=st.data()
)
def test_every_single_change_is_reported(tmp_path_factory, contents, data):
    folder = tmp_path_factory.mktemp("any")
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    listed = inventory(folder)
    assert problems(folder, listed) == []

    name = data.draw(st.sampled_from(sorted(contents)))
    kind = data.draw(st.sampled_from(["change", "remove", "add"]))
    if kind == "change":
        (folder / name).write_bytes(data.draw(st.binary(max_size=8).filter(lambda b: b != contents[name])))
    elif kind == "remove":
        (folder / name).unlink()
    else:
        name = "new"
        (folder / name).write_bytes(data.draw(st.binary(max_size=8)))
    assert len(problems(folder, listed)) == 1
    assert problems(folder, listed)[0].startswith(f"{name} ")
