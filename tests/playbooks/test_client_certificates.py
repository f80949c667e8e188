"""Client certificates of mirrors: named in the sources, written from a vault, readable by the package manager alone."""

import json

import pytest

from tests.playbooks.modules import answer_of, module, shared
from tests.playbooks.stubs import mode
from tests.playbooks.test_package_sources import host, repository  # noqa: F401 - host is a fixture
from tests.playbooks.test_runs import play

repositories, signing_keys = shared("package_repository"), shared("signing_keys")
code = module("package_sources")

KEY, CERTIFICATE = "-----BEGIN PRIVATE KEY-----\nS3CR3T\n-----END PRIVATE KEY-----\n", "-----BEGIN CERTIFICATE-----\n"


@pytest.fixture
def site(host, monkeypatch, tmp_path):  # noqa: F811
    """Folders of this test; .row is a repository whose mirror asks for a certificate, .given what a vault has."""
    monkeypatch.setattr(repositories, "APT_CONF", str(tmp_path / "apt.conf.d"))
    monkeypatch.setattr(repositories, "CLIENT_FILES", str(tmp_path / "mirrors") + "/")
    paths = (str(tmp_path / "mirrors/site.pem"), str(tmp_path / "mirrors/site.key"))
    host.client = dict(zip(("client_certificate", "client_key"), paths, strict=True))
    host.given = dict(zip(paths, (CERTIFICATE, KEY), strict=True))
    host.row = lambda kind="apt", **more: repository(
        host, kind=kind, url="https://mirror.example.org/cuda/", **{**host.client, **more}
    )
    return host


def go(row, given=None, **modes):
    params = {"host": "node01", "package_manager": row["kind"], "repositories": [row], "archive": {}}
    return answer_of(code, {**params, "client_files": given or {}, "lock_timeout_s": 1}, **modes)


def test_apt_is_told_the_certificate_for_the_host_of_the_mirror_alone(site, tmp_path):
    row = site.row()
    answer = go(row, site.given)

    assert answer["changed"], answer
    told = (tmp_path / "apt.conf.d/52gpucheck-cuda").read_text()
    assert told == (
        f'Acquire::https::mirror.example.org::SslCert "{row["client_certificate"]}";\n'
        f'Acquire::https::mirror.example.org::SslKey "{row["client_key"]}";\n'
    )
    assert not go(row, site.given)["changed"]


def test_dnf_has_it_in_the_source_file(site, tmp_path):
    row = site.row("dnf")
    site.trusted = [row["key_fingerprint"]]
    go(row, site.given)
    lines = (tmp_path / "YUM_REPOS/cuda.repo").read_text().splitlines()

    assert {f"sslclientcert = {row['client_certificate']}", f"sslclientkey = {row['client_key']}"} <= set(lines)
    assert not go(row, site.given)["changed"]
    # Without the setting the file is another one.
    assert go(site.row("dnf", client_certificate=None, client_key=None))["changed"]


def test_the_key_is_readable_by_its_owner_alone_and_in_no_answer(site, tmp_path):
    answer = go(site.row(), site.given)

    assert (tmp_path / "mirrors/site.key").read_text() == KEY
    assert (mode(tmp_path / "mirrors/site.key"), mode(tmp_path / "mirrors/site.pem")) == (0o600, 0o644)
    assert "S3CR3T" not in json.dumps(answer)

    (tmp_path / "mirrors/site.key").chmod(0o644)
    assert repositories.differences({"repositories": [site.row()]}, []) != []
    assert go(site.row(), site.given)["changed"]
    assert mode(tmp_path / "mirrors/site.key") == 0o600


def test_a_renewed_certificate_replaces_the_old_one(site, tmp_path):
    go(site.row(), site.given)
    renewed = {**site.given, site.client["client_certificate"]: "renewed\n"}

    assert go(site.row(), renewed)["paths"] == [site.client["client_certificate"]]
    assert (tmp_path / "mirrors/site.pem").read_text() == "renewed\n"


def test_check_mode_writes_nothing(site, tmp_path):
    assert go(site.row(), site.given, check_mode=True)["changed"]
    assert not (tmp_path / "mirrors").exists()


def test_a_missing_key_is_refused_before_anything_is_written(site, tmp_path):
    answer = go(site.row())

    assert "site.pem, " in answer["msg"]
    assert "repository_client_files" in answer["msg"]
    assert not (tmp_path / "APT_LISTS").exists()


def test_files_of_the_site_are_used_and_never_written_or_taken_away(site, tmp_path):
    own = {"client_certificate": str(tmp_path / "own.pem"), "client_key": str(tmp_path / "own.key")}
    for path in own.values():
        (tmp_path / path).write_text(KEY)
    row = site.row(**own)

    assert go(row)["changed"]
    assert not set(own.values()) & set(repositories.all_paths(row))
    said = go(row, {own["client_key"]: "other\n"})
    assert "is not below" in said["msg"]
    assert (tmp_path / "own.key").read_text() == KEY


def test_what_is_written_goes_with_the_plan(site, tmp_path):
    row = site.row()

    assert {*site.client.values(), str(tmp_path / "apt.conf.d/52gpucheck-cuda")} < set(repositories.all_paths(row))


@pytest.mark.parametrize("own", [True, False])
def test_the_signing_key_of_the_mirror_is_fetched_with_the_certificate(site, monkeypatch, own):
    """Of the mirror alone: another host is not shown who asks."""
    seen, fetch = [], signing_keys.fetch
    monkeypatch.setattr(
        signing_keys, "fetch", lambda one, url: (seen.append(one.params.get("client_key")), fetch(one, url))[1]
    )
    monkeypatch.setattr(repositories, "same_host", lambda _: own)
    go(site.row(), site.given)

    assert seen == [site.client["client_key"] if own else None]


@pytest.mark.parametrize(
    ("key_url", "same"),
    [("https://mirror.example.org/key", True), ("https://elsewhere.example/key", False), ("file:///key", False)],
)
def test_the_mirror_is_known_by_its_host(site, key_url, same):
    assert repositories.same_host({**site.row(), "key_url": key_url}) is same


PLAY = """
- hosts: node17
  connection: local
  gather_facts: false
  vars:
    ansible_become: false
    repository_client_files: {files}
  tasks:
    - include_role: {{name: gpucheck.provision.repository}}
      vars: {{repository_plan: {plan}}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["/etc/gpucheck/mirrors", "/elsewhere"])
def test_a_run_shows_no_key_however_much_it_shows(tmp_path, folder):
    """-vvv prints every argument of every module; also where the role refuses them."""
    client = {"client_certificate": f"{folder}/x.pem", "client_key": f"{folder}/x.key"}
    row = {"name": "site-test", "kind": "apt", "url": "https://mirror.example.org/", "suite": "/", **client}
    row |= {"key_url": "https://mirror.example.org/key", "key_fingerprint": "A" * 40, "keyring": "/nowhere/key.gpg"}
    plan = {"schema": "gpucheck.plan/1", "package_manager": "apt", "repositories": [row]}
    files = dict(zip(client.values(), (CERTIFICATE, KEY), strict=True))
    plays = PLAY.format(files=json.dumps(files), plan=json.dumps(plan))

    done = play(tmp_path, plays, "-vvv", "--check", "--diff", hosts=["node17"])

    assert "Configure the repositories" in done.stdout, done.stdout + done.stderr
    assert (done.returncode == 0) == (folder != "/elsewhere"), done.stdout
    assert ("is not below /etc/gpucheck/mirrors/" in done.stdout) == (folder == "/elsewhere"), done.stdout
    assert "S3CR3T" not in done.stdout + done.stderr
