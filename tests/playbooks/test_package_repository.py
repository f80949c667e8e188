"""Package sources of a plan against the host's files: two entries for one repository, and what dnf must check."""

import pytest

from tests.playbooks.planned import DATA, repository_code

RSA = "E330F152D648B8AD42B0AF30D384DE7990FFEED0"


@pytest.mark.parametrize(("address", "rival"), [("x86_64", True), ("x86_64-extra", False)])
def test_a_second_entry_for_a_planned_repository_is_a_rival(machine, address, rival):
    """Which entries are is in test_adopt."""
    (machine.folder / "cuda.sources").write_text(f"URIs: https://mirror.example.org/ubuntu2204/{address}\n")

    assert bool(machine.compare()["host"]["rivals"]) is rival


@pytest.mark.parametrize(("signed", "checks"), [("both", (1, 1)), ("packages", (1, 0)), ("metadata", (0, 1))])
def test_a_dnf_repository_checks_what_its_publisher_signs(tmp_path, monkeypatch, signed, checks):
    """Asking for more refuses a good repository, asking for less lets a bad one in."""
    for name in ("YUM_REPOS", "RPM_KEYS"):
        monkeypatch.setattr(repository_code, name, str(tmp_path))
    key = DATA / "signing-key-rsa2048.asc"
    (tmp_path / "RPM-GPG-KEY-cuda").write_bytes(key.read_bytes())
    row = {"name": "cuda", "kind": "dnf", "url": "https://m/", "key_url": "https://m/k", "key_fingerprint": RSA}
    plan = {"repositories": [{**row, "signed": signed}]}
    path = tmp_path / "cuda.repo"
    settings = f"[cuda]\nbaseurl = https://m/\nenabled = 1\ngpgcheck = {checks[0]}\nrepo_gpgcheck = {checks[1]}\n"
    good = f"{settings}gpgkey = file://{tmp_path}/RPM-GPG-KEY-cuda\n"
    path.write_text(good)
    assert repository_code.differences(plan, [RSA]) == []
    # Another key with the same last eight digits is another key.
    for trusted in ([], ["0" * 32 + RSA[-8:]]):
        assert repository_code.differences(plan, trusted) == ["cuda: its key is not imported into rpm"]

    path.write_text(good.replace(f"repo_gpgcheck = {checks[1]}", f"repo_gpgcheck = {1 - checks[1]}"))
    assert repository_code.differences(plan, [RSA]) == [f"cuda: {path} is missing or different"]


def test_a_key_other_than_the_pinned_one_is_a_difference(machine):
    """Also where somebody else put it there."""
    machine.plan["repositories"][0]["key_fingerprint"] = "FDEE779FA5C8D8701EE58DB39E5FF66A7905B8FB"

    (said,) = machine.differences()["repository"]

    assert "holds key E330F152D648B8AD42B0AF30D384DE7990FFEED0, planned FDEE779F" in said
