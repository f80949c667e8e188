"""A site that has collected its packages."""

import json
import shutil
import subprocess

import msgspec
import pytest

from gpucheck.bundle import contents, wheels
from gpucheck.bundle.folder import described
from gpucheck.stack.lock import write_lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.spec import Repository
from tests.bundle.collecting import GROUP, HOMES, SOURCES, deb, publish_apt, publishers_key
from tests.bundle.site import WHEEL, site_lock


@pytest.fixture(scope="module", autouse=True)
def agents():
    """No agent of gpg stays behind."""
    yield
    for home in HOMES:
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """(lock file, what a host collected): as the playbook leaves them."""
    root = tmp_path_factory.mktemp("site")
    signing = publishers_key(root / "gpg")
    pins = {name: Repository(key_fingerprint=signing.fingerprint) for name in SOURCES}
    lock = site_lock(repositories=pins)
    (root / "stack.lock.yml").write_text(write_lock(lock))
    found = plan(lock, group=GROUP)
    assert isinstance(found, Plan)
    rows = []
    for package in [*contents.planned(found), {"name": "libdependency1", "version": "1:2-1"}]:
        version = package["version"] or "1-1"
        path = deb(root / f"collected/{GROUP}/packages", package["name"], version)
        rows.append({"name": package["name"], "version": version, "arch": "all", "file": path.name})
        rows[-1].update(msgspec.to_builtins(described(path)))
    answer = {
        "group": GROUP,
        "packages": rows,
        "not_offered": ["python3-apt"],
        "modules": [],
        "metadata": publish_apt(root / f"collected/{GROUP}", signing),
        "python": {"version": "3.11", "glibc": "2.36", "machine": "x86_64"},
        "requirements": "gpucheck\n",
        "pip_args": [],
    }
    (root / f"collected/{GROUP}.json").write_text(json.dumps(answer))
    return root


@pytest.fixture
def made(site, tmp_path, monkeypatch):
    """A copy of the site's collection, and the bundle made from it; pip is not asked."""

    def some(_requirements, _torch, _python, _pip_args, folder):
        folder.mkdir(exist_ok=True)
        (folder / WHEEL.name).write_bytes(b"wheel")
        (tmp_path / "requirements.lock").write_text("click==8.5.1\n")
        return tmp_path / "requirements.lock"

    monkeypatch.setattr(wheels, "download", some)
    shutil.copytree(site, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("gpg"))
    return tmp_path
