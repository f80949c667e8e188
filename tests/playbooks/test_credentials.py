"""Credentials in addresses: in no output, no message, and in no file that every user can read."""

import json
import subprocess

import pytest
import yaml

from tests.playbooks.modules import PLAYBOOKS, ROLES, answer_of, module, shared
from tests.playbooks.stubs import mode, script
from tests.playbooks.test_package_sources import host, repository  # noqa: F401 - host is a fixture
from tests.playbooks.test_runs import play

TOKEN = "T0K3N-of-alice"
SITE = f"https://alice:{TOKEN}@mirror.example.org/cuda"
credentials = shared("credentials")
repositories = shared("package_repository")


@pytest.fixture
def site(host, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setattr(repositories, "APT_AUTH", str(tmp_path / "auth.conf.d"))
    return host


def sources(site, *rows):
    arguments = {"host": "node17", "package_manager": rows[0]["kind"], "repositories": list(rows)}
    return answer_of(module("package_sources"), {**arguments, "archive": None, "lock_timeout_s": 1})


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (f"E: {SITE} 404", "E: https://***@mirror.example.org/cuda 404"),
        ("http://a:p@ss@h/x and ftp://t@g", "http://***@h/x and ftp://***@g"),
        ("https://h/x@y.z mail a@b", "https://h/x@y.z mail a@b"),
    ],
)
def test_what_stands_before_an_at_sign_in_an_address_is_masked(words, shown):
    assert credentials.masked(words) == shown


def test_apt_has_the_credentials_in_a_file_of_roots_own(site, tmp_path):
    row = repository(site, url=SITE)
    answer = sources(site, row)
    source, auth = tmp_path / "APT_LISTS/cuda.list", tmp_path / "auth.conf.d/gpucheck-cuda.conf"

    assert answer["changed"]
    assert "deb [signed-by=" in source.read_text()
    assert TOKEN not in source.read_text()
    assert auth.read_text() == f"machine mirror.example.org/cuda login alice password {TOKEN}\n"
    assert (mode(source), mode(auth)) == (0o644, 0o600)
    assert str(auth) in repositories.all_paths(row)  # taken away by deprovision
    assert not sources(site, row)["changed"]


def test_dnf_has_the_credentials_in_a_file_of_roots_own(site, tmp_path):
    row = repository(site, kind="dnf", url=SITE)
    site.trusted = [row["key_fingerprint"]]
    sources(site, row)
    source = tmp_path / "YUM_REPOS/cuda.repo"
    lines = source.read_text().splitlines()

    assert {"baseurl = https://mirror.example.org/cuda", "username = alice", f"password = {TOKEN}"} <= set(lines)
    assert mode(source) == 0o600
    assert not sources(site, row)["changed"]


def test_a_refusal_of_the_package_manager_shows_no_credentials(site):
    site.answer = (100, "", f"E: Failed to fetch {SITE}/Packages 401 Unauthorized")
    answer = sources(site, repository(site, url=SITE))

    assert answer["failed"]
    assert "401 Unauthorized" in answer["msg"]
    assert "https://***@mirror.example.org/cuda" in answer["msg"]
    assert TOKEN not in json.dumps(answer)


def test_the_mode_of_a_record_follows_its_content():
    assert credentials.mode_for({"repositories": [{"url": SITE}]}) == 0o600
    assert credentials.mode_for({"repositories": [{"url": "https://mirror.example.org/cuda"}]}) == 0o644


def test_a_note_that_gets_credentials_is_never_readable(tmp_path):
    """Also where a file with wider permissions is there: atomic_move gives those to the new one."""
    path = tmp_path / "stack.json"
    path.write_text("{}")
    path.chmod(0o644)

    class Moves:
        def atomic_move(self, source, destination):
            seen.append(mode(path))
            subprocess.run(["/bin/mv", source, destination], check=True)

    seen: list[int] = []
    shared("place").write(Moves(), str(path), b"x", 0o600)

    assert (seen, mode(path), path.read_bytes()) == ([0o600], 0o600, b"x")


PLAY = """
- hosts: node17
  connection: local
  gather_facts: false
  vars_files: [{playbooks}/vars/outcome.yml]
  vars:
    ansible_become: false
    gpucheck_pip_args: [--index-url, "{site}"]
    gpucheck_pip_timeout_s: 30
    gpucheck_environment: {{rc: 0}}
    gpucheck_wheel: {{path: /w/x.whl}}
    plan_told:
      {{file: {folder}/plan.json, sha256: "{{{{ lookup('file', '{folder}/plan.json') | hash('sha256') }}}}",
        pip_args: [--index-url, "{site}"], requirements: x, torch: "", digest: y}}
    plan_wheel: {{path: x}}
  tasks:
    - block:
        - import_tasks: {playbooks}/tasks/host_plan.yml
        - include_role: {{name: gpucheck.provision.repository, rolespec_validate: false}}
          vars: {{repository_plan: "{{{{ host_plan }}}}", repository_archive: {{}}, repository_lock_timeout_s: 1}}
        - import_tasks: {folder}/pip.yml
      rescue:
        - ansible.builtin.debug: {{msg: "ENDED {{{{ outcome_reason }}}}"}}
"""


@pytest.mark.slow
def test_a_run_shows_no_credentials_however_much_it_shows(tmp_path):
    """-vvv prints every argument of every module; pip's call is the role's own, and its program fails."""
    text = '#!/bin/sh\necho "ERROR: 401 for $8" >&2\necho "ERROR: 401 $*" >&2\nexit 1\n'
    program = script(tmp_path / "pip", text)
    role = (ROLES / "gpucheck/tasks/environment.yml").read_text()
    whole = yaml.safe_load(role.replace("/opt/gpucheck/venv/bin/python", program))
    tasks = [task for task in whole if "gpucheck_pip" in str(task.get("ansible.builtin.command", ""))]
    (tmp_path / "pip.yml").write_text(yaml.safe_dump(tasks))
    url = {"name": "site-test", "kind": "apt", "url": SITE, "key_url": f"{SITE}/key", "key_fingerprint": "A" * 40}
    row = {**url, "suite": "/", "keyring": str(tmp_path / "key.gpg")}
    plan = {"schema": "gpucheck.plan/1", "package_manager": "apt", "repositories": [row]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    plays = PLAY.format(playbooks=PLAYBOOKS, folder=tmp_path, site=SITE)
    pip_only = plays.replace("        - include_role", "        # ", 1)
    pip_only = pip_only.replace("          vars: {repository_plan", "          # {repository_plan")

    checked = play(tmp_path, plays, "-vvv", "--check", "--diff", hosts=["node17"])
    failed = play(tmp_path, pip_only, "-vvv", hosts=["node17"])

    assert "Configure the repositories" in checked.stdout, checked.stdout[-3000:]
    assert len(tasks) == 3
    assert "ENDED node17: Install gpucheck and its dependencies: " in failed.stdout, failed.stdout
    assert "ERROR: 401" in failed.stdout
    assert "https://***@mirror.example.org/cuda" in failed.stdout
    for done in (checked, failed):
        assert TOKEN not in done.stdout + done.stderr
