"""Files over the network, from a saved index, and what a hostile server or mirror tries."""

import http.server
import json
import threading
from base64 import b64decode

import pytest
from click.testing import CliRunner

from gpucheck.cli.stack import COMMAND
from gpucheck.repositories.fetching import Network, NotThere, place_of, saved, saving, without_credentials
from gpucheck.repositories.index import UnusableIndex
from gpucheck.stack import StackSpec
from gpucheck.stack.lock import lock, write_lock
from gpucheck.stack.spec import Repository
from tests.cli.documents import follows
from tests.repositories import mirror
from tests.repositories.test_comparison import packages_of, planned
from tests.stack.hosts import host

CONTENT = b"content of a file" * 1000


class Handler(http.server.BaseHTTPRequestHandler):
    """A server whose paths say how it behaves."""

    def do_GET(self):
        server = self.server
        server.asked.append((self.path, self.headers.get("Authorization", "")))
        behaviour = self.path.strip("/").split("/")[0]
        if behaviour == "private" and not self.headers.get("Authorization"):
            self.send_error(401)
        elif behaviour == "elsewhere":
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
        elif behaviour.isdecimal():
            self.send_error(int(behaviour))
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT) * (2 if behaviour == "short" else 1)))
            self.end_headers()
            self.wfile.write(CONTENT)

    def log_message(self, *arguments):
        """Nothing on stderr."""


@pytest.fixture(scope="module")
def server():
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.asked = []
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()


@pytest.fixture
def url(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", "/nonexistent")
    return f"http://127.0.0.1:{server.server_port}"


def network(**values):
    return Network(seconds=5, **values)


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("404/x", NotThere, "HTTP 404: there is no such file"),
        ("403/x", UnusableIndex, "HTTP 403: the server rejects the request"),
        ("private/x", UnusableIndex, "HTTP 401: the server requires credentials"),
        ("503/x", UnusableIndex, "HTTP 503"),
        ("short/x", UnusableIndex, "ended after 17000 of 34000 bytes|IncompleteRead"),
        ("elsewhere/?file:///etc/passwd", UnusableIndex, "Redirection to url .* is not allowed"),
    ],
)
def test_a_refusal_is_named_and_is_no_verdict_on_the_repository(url, path, kind, words):
    with pytest.raises(kind, match=words) as error:
        network().get(f"{url}/{path}", 1 << 20)
    assert not error.value.rejected
    assert error.value.do


def test_a_server_error_is_tried_again(url, server):
    server.asked.clear()
    with pytest.raises(UnusableIndex):
        network().get(f"{url}/500/x", 1 << 20)
    assert len(server.asked) == 2


@pytest.mark.parametrize("bad", ["ftp://host/x", "gopher://x", "//host/x", "x", "data:text/plain,x"])
def test_other_schemes_are_rejected(bad):
    with pytest.raises(UnusableIndex, match="not an https, http or file URL"):
        network().get(bad, 10)


def test_credentials_come_from_the_url_or_from_netrc_and_stay_out_of_messages(url, server, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password s3cret\n")
    netrc.chmod(0o600)
    server.asked.clear()

    assert network(netrc_file=netrc).get(f"{url}/private/a", 1 << 20) == CONTENT
    assert network().get(url.replace("//", "//you:pa%20ss@") + "/private/b", 1 << 20) == CONTENT
    sent = [b64decode(row[1].partition(" ")[2]).decode() for row in server.asked if row[1]]
    assert sent == ["me:s3cret", "you:pa ss"]

    with pytest.raises(UnusableIndex) as error:
        network().get(url.replace("//", "//you:pa%20ss@") + "/404/b", 1 << 20)
    assert "pa%20ss" not in str(error.value)
    assert without_credentials("https://a:b@host/x?y") == "https://host/x?y"


def test_a_file_of_access_that_cannot_be_used_is_named(tmp_path):
    bad = tmp_path / "netrc"
    bad.write_text("no access")
    with pytest.raises(ValueError, match=f"{bad}: not a usable netrc file"):
        network(netrc_file=bad)


def test_what_is_saved_is_read_again(url, tmp_path):
    saving(network().get, tmp_path / "saved")(f"{url}/a/b/file?x=1", 1 << 20)

    assert saved(tmp_path / "saved")(f"{url}/a/b/file", 1 << 20) == CONTENT
    assert (tmp_path / "saved/127.0.0.1/a/b/file").is_file()
    with pytest.raises(NotThere, match="not saved"):
        saved(tmp_path / "saved")(f"{url}/other", 1 << 20)


@pytest.mark.parametrize("path", ["/../x", "/a/%2e%2e/x", "/a%2f..%2fx", "/%00", "/" + "x" * 300, "/a/./b"])
def test_a_url_never_leaves_the_saved_directory(tmp_path, path):
    with pytest.raises(UnusableIndex, match="not a usable path"):
        place_of(f"https://host{path}")


def run(*words):
    return CliRunner().invoke(COMMAND, ["check-repositories", *map(str, words)])


@pytest.fixture
def site(tmp_path, publisher):
    """A lock of one group whose repositories are one mirror on this disk."""
    mirror.apt(tmp_path / "mirror", publisher, packages_of(planned()))
    url = (tmp_path / "mirror").as_uri() + "/"
    own = Repository(url=url, key_url=f"{url}key.asc", key_fingerprint=publisher.fingerprint)
    spec = StackSpec(driver="580", repositories=dict.fromkeys(("nvidia-cuda", "nvidia-container-toolkit"), own))
    (tmp_path / "lock.yml").write_text(write_lock(lock(spec, [host("ubuntu-24.04", "h100-sxm5-x8")])))
    return tmp_path


def test_everything_there_is_exit_0_and_a_missing_package_exit_2(site, publisher):
    found = run("--lock", site / "lock.yml")
    assert found.exit_code == 0, found.output
    assert "17 of 17 planned packages are there" in found.output
    assert publisher.fingerprint in found.output

    mirror.apt(site / "mirror", publisher, packages_of(planned())[1:])
    found = run("--lock", site / "lock.yml")
    assert found.exit_code == 2
    assert "missing   nvidia-driver-pinning-580" in found.output


def test_a_saved_index_gives_the_same_report(site):
    live = run("--lock", site / "lock.yml", "--save", site / "saved", "--format", "json")
    (site / "mirror/InRelease").unlink()
    saved = run("--lock", site / "lock.yml", "--index", site / "saved", "--format", "json")

    assert live.exit_code == saved.exit_code == 0
    assert json.loads(live.stdout) == json.loads(saved.stdout)
    assert json.loads(saved.stdout)["schema"] == "gpucheck.repositories/1"
    follows("repositories", json.loads(saved.stdout))


def test_an_index_that_cannot_be_read_is_exit_3_and_a_changed_one_exit_2(site):
    (site / "mirror/Packages.xz").write_bytes(b"changed")
    found = run("--lock", site / "lock.yml")
    assert found.exit_code == 2
    assert "rejected" in found.output

    (site / "mirror/InRelease").unlink()
    found = run("--lock", site / "lock.yml")
    assert found.exit_code == 3
    assert "unreachable" in found.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--group", "nope"], "the lock has no group 'nope'"),
        (["--index", ".", "--save", "x"], "--index reads saved indexes only"),
        (["--netrc", "lock.yml"], "not a usable netrc file"),
        (["--save", "lock.yml/x"], "cannot be written"),
    ],
)
def test_wrong_usage_is_exit_64_and_one_line(site, monkeypatch, words, message):
    monkeypatch.chdir(site)
    found = run("--lock", "lock.yml", *words)

    assert found.exit_code == 64, found.output
    assert message in found.output
    assert "Traceback" not in found.output
