"""From collected packages to a bundle that real apt and dnf tools can read: the whole way, without a host."""

import gzip
import json
import shutil
import subprocess

import pytest

from gpucheck.bundle import making
from gpucheck.bundle.contents import BundleError, manifest_text
from gpucheck.bundle.folder import described, verify
from tests.bundle.collecting import GROUP, make
from tests.bundle.site import WHEEL

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-ftparchive", "dpkg-deb"))), reason="apt-ftparchive and dpkg-deb are not installed"
)


def test_what_was_collected_becomes_a_signed_folder_that_verifies(made):
    manifest = make(made)

    assert verify(made / "bundle").manifest == manifest
    assert list(manifest.groups) == [GROUP]
    system = manifest.systems["ubuntu-22.04-x86_64"]
    assert system.versions["libdependency1"] == ("1:2-1",)
    assert {"libnccl2", "nvidia-dkms-580"} < set(system.versions)
    assert f"ubuntu-22.04-x86_64/wheels/{WHEEL.name}" in manifest.files
    assert (made / "bundle/stack.lock.yml").read_bytes() == (made / "stack.lock.yml").read_bytes()
    assert {path.name for path in made.glob(".bundle*")} <= {".bundle.lock"}
    assert "no source offered python3-apt" in manifest_text(manifest)


def test_the_list_of_packages_is_signed_with_the_bundles_key(made):
    """As apt reads it: InRelease vouches for Packages, Packages for every file."""
    manifest = make(made)
    folder = made / "bundle/ubuntu-22.04-x86_64/packages"
    keyring = made / "keyring.gpg"
    subprocess.run(["gpg", "--dearmor", "--output", keyring, made / "bundle/key.asc"], check=True, capture_output=True)
    told = subprocess.run(
        ["gpgv", "--keyring", keyring, folder / "InRelease"], check=True, capture_output=True, text=True
    )

    assert manifest.key in told.stderr
    assert described(folder / "Packages").sha256 in (folder / "InRelease").read_text()
    packages = (folder / "Packages").read_text()
    for path in folder.glob("*.deb"):
        assert f"Filename: ./{path.name}\n" in packages
        assert described(path).sha256 in packages


def test_a_bundle_replaces_a_bundle_and_nothing_else(made):
    make(made)
    shutil.copytree(made / "bundle", made / "again")
    (made / "other").mkdir()
    (made / "other/thesis.txt").write_text("years of work")

    with pytest.raises(BundleError, match="contains other files and is not a bundle"):
        make(made, target=made / "other")
    assert (made / "other/thesis.txt").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda r: next((r / f"collected/{GROUP}/packages").glob("libnccl2_*")).write_bytes(b"half"),
            "differs from what the host collected",
        ),
        (lambda r: next((r / f"collected/{GROUP}/packages").glob("libnccl2_*")).unlink(), "did not arrive"),
        (lambda r: (r / f"collected/{GROUP}.json").write_text("{}"), "not a response of bundle_packages"),
        (lambda r: (r / f"collected/{GROUP}.json").unlink(), "contains no collected packages"),
    ],
)
def test_half_a_collection_makes_no_bundle(made, damage, words):
    damage(made)

    with pytest.raises(BundleError, match=words):
        make(made)
    assert not (made / "bundle").exists()
    assert {path.name for path in made.glob(".bundle*")} <= {".bundle.lock"}


@pytest.mark.skipif(not shutil.which("createrepo_c"), reason="createrepo_c is not installed")
def test_module_metadata_goes_into_a_dnf_repository(tmp_path):
    """Without it dnf knows no stream, and refuses the packages of one."""
    from gpucheck.bundle.signing import index_dnf, signer

    folder, modules = tmp_path / "packages", tmp_path / "modules.yaml"
    folder.mkdir()
    document = {"document": "modulemd-defaults", "version": 1, "data": {"module": "m", "stream": "1"}}
    modules.write_text(f"---\n{json.dumps(document)}\n...\n")
    with signer("") as signing:
        index_dnf(folder, signing, [modules])

    (written,) = (folder / "repodata").glob("*modules.yaml.gz")
    assert json.dumps(document) in gzip.decompress(written.read_bytes()).decode()
    assert written.name in (folder / "repodata/repomd.xml").read_text()
    assert (folder / "repodata/repomd.xml.asc").read_text().startswith("-----BEGIN PGP SIGNATURE-----")
    assert not (folder / "modules.yaml").exists()


def test_leftovers_of_killed_runs_are_removed_and_the_bundle_before_is_kept(made):
    """Killed while it was made: a directory of gigabytes. Killed between the renames: the bundle has its other name."""
    first = make(made)
    (made / "bundle").rename(made / ".bundle.old")
    (made / ".bundle.ab12cd34/packages").mkdir(parents=True)
    (made / ".bundle.mine").mkdir()

    with making._staging(made / "bundle"):
        assert verify(made / "bundle").manifest == first
        assert not (made / ".bundle.ab12cd34").exists()
    assert (made / ".bundle.mine").is_dir()
    assert not (made / ".bundle.old").exists()


def test_two_runs_do_not_make_one_bundle(made):
    with making._staging(made / "bundle"), pytest.raises(BundleError, match="another run makes this bundle"):
        make(made)


def test_a_bundle_that_cannot_be_made_leaves_the_one_before(made):
    first = make(made)
    with pytest.raises(ZeroDivisionError), making._staging(made / "bundle"):
        raise ZeroDivisionError
    assert verify(made / "bundle").manifest == first
    assert {path.name for path in made.glob(".bundle*")} == {".bundle.lock"}
