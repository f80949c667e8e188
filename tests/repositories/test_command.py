"""gpucheck stack check-repositories, as it is typed."""

import json

import pytest
from click.testing import CliRunner

from gpucheck.cli.stack import COMMAND
from gpucheck.knowledge import _load
from gpucheck.stack import StackSpec
from gpucheck.stack.lock import lock, write_lock
from gpucheck.stack.spec import Repository
from tests.cli.documents import follows
from tests.repositories import mirror
from tests.repositories.test_comparison import packages_of, planned
from tests.stack.hosts import host


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


@pytest.fixture
def site_tables(tmp_path):
    """Without the rows of a site again."""
    yield
    _load.use(tmp_path, {})


def test_record_lets_a_site_state_a_version_that_the_tables_lack(site, publisher, site_tables):
    newer = [mirror.Made(name, "2.30.4-1+cuda13.2") for name in ("libnccl2", "libnccl-dev")]
    strange = mirror.Made("libnccl2", "2.30.4-1+cuda13.2';x")
    mirror.apt(site / "mirror", publisher, [*packages_of(planned()), *newer, strange])
    resolve = ["resolve", "--gpu", "H100 SXM", "--os", "ubuntu-24.04", "--want", "nccl=2.30.4"]
    assert "no record shows it" in CliRunner().invoke(COMMAND, resolve).output.replace("\n    ", " ")

    found = run("--lock", site / "lock.yml", "--record", site / "site/recorded.yml")
    assert found.exit_code == 0, found.output
    text = (site / "site/recorded.yml").read_text()
    assert "2.30.4-1+cuda13.2\n" in text
    assert ";x" not in text

    done = CliRunner().invoke(COMMAND, ["--knowledge-dir", str(site / "site"), *resolve])
    assert done.exit_code == 0, done.output
    assert "2.30.4+cuda13.2 as requested: a record shows it" in done.output.replace("\n    ", " ")


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
        (["--client-key", "lock.yml"], "--client-key requires --client-cert"),
        (["--index", ".", "--save", "x"], "--index reads saved indexes only"),
        (["--ca-file", "lock.yml"], "not a usable certificate or key"),
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
