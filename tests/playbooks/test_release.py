"""A release as its recipient verifies it: with gpg, sha256sum and ansible-galaxy, and a key made for the test."""

import os
import shutil
import subprocess
import sys

import pytest

from gpucheck.bundle.signing import gpg
from gpucheck.processes import gnupg
from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.test_runs import BIN

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed: make bundle-tools"),
]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A signed release, and a function that runs a command of its recipient there."""
    folder = tmp_path_factory.mktemp("release")
    path = f"{BIN}:{os.environ['PATH']}"
    with gnupg.homes() as home, gnupg.agent(home):
        gpg(home, "--passphrase", "", "--quick-gen-key", "release test", "rsa3072", "sign", "never")
        words = [
            sys.executable,
            "-m",
            "release",
            folder / "out",
            "--key",
            "release test",
            "--no-packages",
            "--uncommitted",
        ]
        env = {**os.environ, "GNUPGHOME": str(home), "PATH": path, "SOURCE_DATE_EPOCH": "1800000000"}
        subprocess.run(words, check=True, capture_output=True, env=env, cwd=PLAYBOOKS.parent)
        (folder / "publisher.gpg").write_bytes(
            subprocess.run(["gpg", "--homedir", home, "--export"], check=True, capture_output=True).stdout
        )

    def recipient(command, place):
        env = {"PATH": path, "HOME": str(folder), "GNUPGHOME": str(folder)}
        return subprocess.run(["sh", "-c", command], cwd=place, capture_output=True, text=True, check=False, env=env)

    folder.chmod(0o700)
    assert recipient("gpg --import publisher.gpg", folder).returncode == 0
    return folder, recipient


CHECKSUMS = "gpg --verify SHA256SUMS.asc SHA256SUMS && sha256sum --check SHA256SUMS"
INSTALL = (
    "ansible-galaxy collection install gpucheck-provision-*.tar.gz -p installed --offline && "
    "ANSIBLE_COLLECTIONS_PATH=installed ansible-galaxy collection verify gpucheck.provision --offline "
    '--keyring ../publisher.gpg --signature "file://$(echo "$PWD"/gpucheck-provision-*.asc)" '
    "--required-valid-signature-count +1"
)


@pytest.mark.parametrize("command", [CHECKSUMS, INSTALL], ids=["checksums", "galaxy"])
def test_a_release_verifies(release, command):
    folder, recipient = release
    done = recipient(command, folder / "out")

    assert done.returncode == 0, done.stdout + done.stderr
