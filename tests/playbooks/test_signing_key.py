"""Signing keys: the fingerprint without gpg, and a key that is not the pinned one is refused before it is written."""

import http.server
import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.playbooks.modules import PLAYBOOKS, shared

openpgp = shared("openpgp")
DATA = Path(__file__).parent / "data"
# gpg --list-keys --with-colons said these when the keys were made.
KEYS = {
    "signing-key-rsa2048.asc": "E330F152D648B8AD42B0AF30D384DE7990FFEED0",
    "signing-key-ed25519.asc": "FDEE779FA5C8D8701EE58DB39E5FF66A7905B8FB",
}


@pytest.mark.parametrize(("name", "wanted"), KEYS.items())
def test_the_fingerprint_is_the_one_gpg_gives(name, wanted):
    key = openpgp.read_key((DATA / name).read_bytes())

    assert openpgp.fingerprint(key) == wanted
    assert openpgp.fingerprint(openpgp.read_key(key)) == wanted
    assert openpgp.fingerprint(openpgp.read_key(shared("gpu_keys").armor(key))) == wanted


@pytest.mark.parametrize("name", KEYS)
def test_the_armor_is_gpgs_own(name):
    """Checksum included: without it the gpg of Enterprise Linux reads the last line as part of the key."""
    original = (DATA / name).read_bytes()

    assert shared("gpu_keys").armor(openpgp.read_key(original)) == original


@pytest.mark.parametrize(
    "content", [b"", b"<html>404</html>", b"\x99", b"\x99\x01\x0d\x04", b"\xb4\x03abc", b"\x9b\x01"]
)
def test_what_is_no_key_is_refused(content):
    with pytest.raises(openpgp.NotAKey):
        openpgp.fingerprint(openpgp.read_key(content))


@pytest.mark.parametrize("cut", range(1, 400, 37))
def test_a_truncated_key_is_refused(cut):
    key = openpgp.read_key((DATA / "signing-key-rsa2048.asc").read_bytes())

    with pytest.raises(openpgp.NotAKey):
        openpgp.fingerprint(key[: min(cut, 270)])


@pytest.fixture
def server():
    """The data folder over HTTP; .hits counts the requests."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        hits = 0

        def do_GET(self):
            Handler.hits += 1
            super().do_GET()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(DATA))) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", Handler
        running.shutdown()


def install(**options: object) -> dict[str, object]:
    """Run the module the way Ansible does; options are its arguments."""
    arguments = " ".join(f"{key}='{value}'" for key, value in options.items())
    interpreter = f"ansible_python_interpreter={sys.executable}"
    argv = [
        "localhost",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-o",
        "-e",
        interpreter,
        "-m",
        "signing_key",
        "-a",
        arguments,
    ]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    ansible = str(Path(sys.executable).parent / "ansible")
    done = subprocess.run([ansible, *argv], env=environment, capture_output=True, text=True, timeout=60, check=False)
    answer: dict[str, object] = json.loads(done.stdout.split("=>", 1)[1])
    return {**answer, "failed": done.returncode != 0}


def test_the_pinned_key_is_installed_once_and_needs_no_network_again(tmp_path, server):
    url, handler = server
    dest = tmp_path / "keyrings/test.gpg"
    options = {"url": f"{url}/signing-key-rsa2048.asc", "dest": dest, "fingerprint": KEYS["signing-key-rsa2048.asc"]}

    assert install(**options)["changed"] is True
    assert openpgp.fingerprint(dest.read_bytes()) == KEYS["signing-key-rsa2048.asc"]
    assert dest.stat().st_mode & 0o777 == 0o644
    hits = handler.hits

    assert install(**options)["changed"] is False
    assert handler.hits == hits


def test_another_key_than_the_pinned_one_is_refused_and_not_written(tmp_path, server):
    url, _ = server
    dest = tmp_path / "test.gpg"

    said = install(url=f"{url}/signing-key-ed25519.asc", dest=dest, fingerprint=KEYS["signing-key-rsa2048.asc"])

    assert said["failed"] is True
    assert KEYS["signing-key-ed25519.asc"] in str(said["msg"])
    assert "nothing was written" in str(said["msg"])
    assert not dest.exists()
