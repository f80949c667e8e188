"""A host that already follows NVIDIA's guide: its source is replaced by the planned one, and given back in the end."""

import json

import pytest

from tests.playbooks.modules import Module, module, shared
from tests.playbooks.planned import DATA, record_code
from tests.playbooks.test_package_sources import go, host, left, repository

adopt = shared("adopt")
book = module("install_record")

__all__ = ["host"]

URL = "https://developer.example.com/cuda/rhel9/x86_64"
SECTION = f"[cuda]\nname=cuda\nbaseurl={URL}\nenabled=1\ngpgcheck=1\ngpgkey={URL}/D42D0685.pub\n"
TOOLKIT = "https://nvidia.example.io/stable"


@pytest.fixture
def folder(host, monkeypatch):
    monkeypatch.setattr(adopt.os, "uname", lambda: type("Uname", (), {"machine": "x86_64"}))
    for name in ("APT_LISTS", "YUM_REPOS", "RPM_KEYS", "keyrings"):
        (host.folder / name).mkdir()
    key = shared("openpgp").read_key
    (host.folder / "keyrings/good.gpg").write_bytes(key((DATA / "signing-key-rsa2048.asc").read_bytes()))
    (host.folder / "keyrings/other.gpg").write_bytes(key((DATA / "signing-key-ed25519.asc").read_bytes()))
    return host.folder


def look(host, kind, **row):
    """({path: address} to adopt, sentences on rivals) for one planned repository."""
    return adopt.found([repository(host, kind, **row)])


@pytest.mark.parametrize(
    ("content", "adopted", "rival"),
    [
        ("deb [signed-by={keys}/good.gpg] https://m/cuda/ /\n", True, False),
        ("deb [arch=amd64 signed-by={keys}/good.gpg] https://m/cuda /\n", True, False),
        ("deb [signed-by={keys}/other.gpg] https://m/cuda/ /\n", False, True),
        ("deb https://m/cuda/ /\n", False, True),
        ("deb [signed-by={keys}/gone.gpg] https://m/cuda/ /\n", False, True),
        # A file that names something else, too, is not ours to take away.
        (
            "deb [signed-by={keys}/good.gpg] https://m/cuda/ /\ndeb [signed-by={keys}/good.gpg] https://x/ /\n",
            False,
            True,
        ),
        ("# deb [signed-by={keys}/good.gpg] https://m/cuda/ /\n", False, False),
        ("deb [signed-by={keys}/good.gpg] https://m/cuda-extra/ /\n", False, False),
    ],
)
def test_an_apt_source_with_the_planned_address_and_the_pinned_key_is_adopted(host, folder, content, adopted, rival):
    path = folder / "APT_LISTS/cuda-ubuntu2404-x86_64.list"
    path.write_text(content.format(keys=folder / "keyrings"))

    taken, rivals = look(host, "apt")

    assert taken == ({str(path): "https://m/cuda"} if adopted else {})
    assert bool(rivals) is rival
    assert all(f"{path} also names https://m/cuda/" in words for words in rivals)


@pytest.mark.parametrize(("switch", "adopted"), [("", True), ("Enabled: no\n", False), ("Enabled: yes\n", True)])
def test_a_deb822_source_is_read_too_and_a_disabled_one_is_no_source(host, folder, switch, adopted):
    path = folder / "APT_LISTS/cuda.sources"
    keys = folder / "keyrings/good.gpg"
    path.write_text(f"# NVIDIA\n{switch}Types: deb\nURIs: https://m/cuda/\nSuites: /\nSigned-By: {keys}\n")

    assert look(host, "apt") == ({str(path): "https://m/cuda"} if adopted else {}, [])


def test_the_toolkits_documented_line_names_its_address_with_a_variable(host, folder):
    path = folder / "APT_LISTS/libnvidia-container.list"
    path.write_text(f"deb [signed-by={folder}/keyrings/good.gpg] {TOOLKIT}/deb/$(ARCH) /\n#deb {TOOLKIT}/x/$(ARCH) /\n")

    assert list(look(host, "apt", url=f"{TOOLKIT}/deb/amd64/")[0]) == [str(path)]

    repo = folder / "YUM_REPOS/libnvidia-container.repo"
    off = "[experimental]\nbaseurl=https://nvidia.example.io/experimental\nenabled=0\n"
    repo.write_text(f"[stable]\nbaseurl={TOOLKIT}/rpm/$basearch\nenabled=1\ngpgkey={TOOLKIT}/gpgkey\n{off}")
    row = {"url": f"{TOOLKIT}/rpm/x86_64/", "key_url": f"{TOOLKIT}/gpgkey"}
    assert list(look(host, "dnf", **row)[0]) == [str(repo)]


@pytest.mark.parametrize(
    ("content", "adopted", "rival"),
    [
        (SECTION, True, False),
        (SECTION.replace("gpgkey=https", "gpgkey=https://elsewhere.example.com/https"), False, True),
        (SECTION.replace("enabled=1", "enabled=0"), False, False),
        (SECTION + "[other]\nbaseurl=https://x/\n", False, True),
        ("no ini file with " + URL, False, False),
    ],
)
def test_a_dnf_source_with_the_planned_address_and_key_is_adopted(host, folder, content, adopted, rival):
    path = folder / "YUM_REPOS/cuda-rhel9.repo"
    path.write_text(content)

    taken, rivals = look(host, "dnf", url=URL + "/", key_url=URL + "/D42D0685.pub")

    assert (bool(taken), bool(rivals)) == (adopted, rival)


@pytest.fixture
def known(host, folder, monkeypatch):
    """A host with NVIDIA's own list, and the beginning of a plan for it."""
    monkeypatch.setattr(record_code, "BASELINE", str(folder / "baseline.json"))
    monkeypatch.setattr(record_code, "INSTALLED", str(folder / "installed.json"))
    monkeypatch.setattr(record_code, "TRANSACTION", str(folder / "transaction.json"))
    path = folder / "APT_LISTS/cuda-ubuntu2404-x86_64.list"
    path.write_text(f"deb [signed-by={folder}/keyrings/good.gpg] https://m/cuda/ /\n")
    path.chmod(0o640)
    plan = {"repositories": [repository(host)], "files": [], "module_stream": None, "components": {}}
    book.begin(Module({}), plan, {"packages": {}, "keys": []})
    return path, plan


def test_the_old_source_goes_and_is_given_back_when_the_plan_no_longer_has_it(host, folder, known):
    path, plan = known
    before = path.read_text()

    assert str(path) in go(*plan["repositories"])["paths"]
    assert not path.exists()
    assert go(*plan["repositories"])["changed"] is False

    installed = {"paths": sorted(record_code.planned_paths(plan))}
    (folder / "installed.json").write_text(json.dumps(installed))
    assert record_code.left_files(plan) == []
    gone = {**plan, "repositories": []}
    assert str(path) in record_code.left_files(gone)

    book.restore(Module({}), record_code.left_files(gone))
    assert path.read_text() == before
    assert path.stat().st_mode & 0o777 == 0o640
    assert str(path) not in record_code.planned_paths(plan)


def test_the_old_source_is_back_at_once_where_the_lists_are_refused(host, folder, known):
    path, plan = known
    host.answer = (100, "", "E: refused")

    assert "was removed again" in go(*plan["repositories"])["msg"]

    assert path.exists()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [name for name in left(host) if name.endswith(".list")] == [path.name]


def test_without_a_record_of_it_no_source_is_taken_away(host, folder, known):
    path, plan = known
    (folder / "baseline.json").unlink()

    go(*plan["repositories"])

    assert path.exists()


def test_check_mode_says_which_source_would_go(host, folder, known):
    path, plan = known

    assert str(path) in go(*plan["repositories"], check_mode=True)["paths"]
    assert path.exists()


def test_adopting_is_a_difference_and_no_reason_to_refuse(machine):
    path = machine.folder / "cuda-ubuntu2204-x86_64.list"
    path.write_text(f"deb [signed-by={machine.folder}/key.gpg] https://mirror.example.org/ubuntu2204/x86_64/ /\n")

    answer = machine.compare()

    assert answer["host"]["rivals"] == []
    assert answer["differences"]["repository"] == [
        f"{path} names the same repository, and is replaced by the planned file"
    ]

    path.rename(path.with_suffix(".sources")).write_text("URIs: https://mirror.example.org/ubuntu2204/x86_64\n")
    assert len(machine.compare()["host"]["rivals"]) == 1
