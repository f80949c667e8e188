"""Package sources of a plan against the host's files: two entries for one repository, and what dnf must check."""

import pytest

from tests.playbooks.planned import DATA, repository_code


@pytest.mark.parametrize(
    ("name", "line", "rival"),
    [
        ("cuda-ubuntu2204-x86_64.list", "deb [signed-by=/x.gpg] https://mirror.example.org/ubuntu2204/x86_64/ /", True),
        ("cuda.sources", "URIs: https://mirror.example.org/ubuntu2204/x86_64", True),
        ("old.list", "# deb https://mirror.example.org/ubuntu2204/x86_64/ /", False),
        ("other.list", "deb https://mirror.example.org/ubuntu2204/x86_64-extra/ /", False),
    ],
)
def test_a_second_entry_for_a_planned_repository_is_a_rival(machine, name, line, rival):
    (machine.folder / name).write_text(line + "\n")

    assert bool(machine.compare()["host"]["rivals"]) is rival


def test_a_dnf_repository_checks_packages_and_metadata(tmp_path, monkeypatch):
    for name in ("YUM_REPOS", "RPM_KEYS"):
        monkeypatch.setattr(repository_code, name, str(tmp_path))
    key = DATA / "signing-key-rsa2048.asc"
    (tmp_path / "RPM-GPG-KEY-cuda").write_bytes(key.read_bytes())
    plan = {
        "repositories": [
            {"name": "cuda", "kind": "dnf", "url": "https://m/", "key_fingerprint": None, "key_url": "https://m/k"}
        ]
    }
    path = tmp_path / "cuda.repo"
    good = f"[cuda]\nbaseurl = https://m/\nenabled = 1\ngpgcheck = 1\nrepo_gpgcheck = 1\ngpgkey = file://{tmp_path}/RPM-GPG-KEY-cuda\n"
    path.write_text(good)
    assert repository_code.differences(plan, ["90ffeed0"]) == []
    assert repository_code.differences(plan, []) == ["cuda: its key is not imported into rpm"]

    path.write_text(good.replace("repo_gpgcheck = 1", "repo_gpgcheck = 0"))
    assert repository_code.differences(plan, ["90ffeed0"]) == [f"cuda: {path} is missing or different"]


def test_a_key_other_than_the_pinned_one_is_a_difference(machine):
    """Also where somebody else put it there."""
    machine.plan["repositories"][0]["key_fingerprint"] = "FDEE779FA5C8D8701EE58DB39E5FF66A7905B8FB"

    (said,) = machine.differences()["repository"]

    assert "holds key E330F152D648B8AD42B0AF30D384DE7990FFEED0, planned FDEE779F" in said
