"""gpucheck bundle, and stack plan --bundle: what the playbooks call."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from gpucheck.cli.bundle import COMMAND
from gpucheck.cli.stack import COMMAND as STACK
from gpucheck.stack.lock import write_lock
from tests.bundle.site import signed_folder, site_lock
from tests.cli.documents import follows
from tests.stack.hosts import host

APT, DNF = "ubuntu-22.04-x86_64-15f8x2", "rocky-9-x86_64-2330x8"
PACKAGE = "ubuntu-22.04-x86_64/packages/a.deb"


def run(*words, command=COMMAND):
    """The command in this process."""
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """(a signed bundle, its key)."""
    folder = tmp_path_factory.mktemp("bundle")
    return folder, signed_folder(folder, {PACKAGE: b"a", "stack.lock.yml": b"lock"})


@pytest.fixture
def site(tmp_path):
    """A folder with the lock and the facts of two hosts."""
    (tmp_path / "stack.lock.yml").write_text(write_lock(site_lock()))
    for one in (host("ubuntu-22.04", "p100-pcie-x2", "lab-apt"), host("rocky-9", "h100-sxm5-x8", "staging")):
        (tmp_path / f"{one.host}.json").write_bytes(msgspec.json.encode(one))
    return tmp_path


def test_verify_lists_contents_of_a_valid_bundle(bundle):
    folder, key = bundle
    text, answer = run("verify", folder), run("verify", folder, "--format", "json", "--fingerprint", key)

    assert (text.exit_code, answer.exit_code) == (0, 0)
    assert f"signed by {key}" in text.stdout
    assert "SIMULATED" in text.stdout
    assert f"for group {APT}" in text.stdout
    told = json.loads(answer.stdout)
    assert (told["schema"], told["key"], told["simulated"]) == ("gpucheck.bundle-summary/1", key, True)
    assert "files" not in told
    follows("bundle-summary", told)


def test_verify_distinguishes_changed_bundle_from_other_directory(bundle, tmp_path):
    other, none = run("verify", bundle[0], "--fingerprint", "AB" * 20), run("verify", tmp_path)

    assert (other.exit_code, none.exit_code) == (2, 3)
    assert "expected " + "AB" * 20 in other.stderr
    assert "Give the directory that make bundle wrote" in none.stderr


def test_order_gives_each_group_to_a_host_of_its_system(site):
    facts = [word for name in ("staging", "lab-apt") for word in ("--facts", site / f"{name}.json")]
    result = run("order", "--lock", site / "stack.lock.yml", *facts, "-o", site / "orders")

    assert result.exit_code == 0, result.output
    hosts = {path.stem: json.loads(path.read_text())["host"] for path in (site / "orders").glob("*.json")}
    assert hosts == {APT: "lab-apt", DNF: "staging"}
    assert json.loads((site / f"orders/{DNF}.plan").read_text())["group"] == DNF

    again = run("order", "--lock", site / "stack.lock.yml", *facts, "--group", "ubuntu-*", "-o", site / "orders")
    assert again.exit_code == 0
    assert [path.stem for path in (site / "orders").glob("*.json")] == [APT]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--group", "debian-*"], "no group 'debian-*' in the lock"), ([], f"group {DNF}: no host with rocky-9-x86_64")],
)
def test_order_without_a_collecting_host_fails(site, words, said):
    facts = ["--facts", site / "lab-apt.json"]
    result = run("order", "--lock", site / "stack.lock.yml", *facts, *words, "-o", site / "orders")

    assert result.exit_code == 3
    assert said in result.stderr
    assert not (site / "orders").exists()


def test_a_folder_of_other_things_is_refused_before_anything_is_downloaded(site):
    facts = ["--facts", site / "lab-apt.json", "--facts", site / "staging.json"]
    result = run("order", "--lock", site / "stack.lock.yml", *facts, "--target", site, "-o", site / "orders")

    assert result.exit_code == 3
    assert "is not a bundle" in result.stderr
    assert not (site / "orders").exists()


def test_plans_have_the_bundle_as_their_source_or_are_refused(site):
    signed_folder(site / "bundle", {PACKAGE: b"a"})
    words = ["plan", "--lock", site / "stack.lock.yml", "--all-hosts", site / "plans"]
    result = run(*words, "--bundle", site / "bundle", command=STACK)

    assert result.exit_code == 0, result.output
    apt, dnf = (json.loads((site / f"plans/{name}.json").read_text()) for name in ("lab-apt", "lab-dnf"))
    assert [row["name"] for row in apt["repositories"]] == ["gpucheck-bundle"]
    assert "was not made for group" in dnf["conflicts"][0]["because"]

    assert run(*words, command=STACK).exit_code == 0
    apt = json.loads((site / "plans/lab-apt.json").read_text())
    assert [row["name"] for row in apt["repositories"]] == ["nvidia-cuda", "nvidia-container-toolkit"]
