"""gpucheck stack lock and diff: what would move, and where an edited lock is wrong."""

import json

import msgspec

from tests.stack.cli_words import lock_words, run, site
from tests.stack.hosts import host

__all__ = ["site"]  # a fixture is used by its name


def diff_words(site, *more):
    """The words of a diff of the site's lock."""
    return lock_words(site, *more, command="diff", target="--lock")


def test_diff_of_a_lock_that_is_current_is_empty(site):
    run(*lock_words(site))
    result = run(*diff_words(site))

    assert (result.exit_code, result.stdout) == (0, f"{site / 'stack.lock.yml'}: no changes\n")


def test_diff_shows_what_an_upgrade_would_move_and_writes_nothing(site):
    """The lock still holds an older driver, which lock keeps and lock --upgrade moves."""
    path = site / "stack.lock.yml"
    run(*lock_words(site))
    path.write_text(path.read_text().replace("620.70.06", "620.60.01"))
    before = path.read_bytes()
    text, answer = run(*diff_words(site)), run(*diff_words(site, "--format", "json"))

    assert (text.exit_code, answer.exit_code) == (1, 1)
    assert "rocky-9-x86_64-2330x8: fabric manager 620.60.01 -> 620.70.06" in text.stdout
    assert json.loads(answer.stdout)["changes"] == text.stdout.splitlines()
    assert path.read_bytes() == before
    assert run(*lock_words(site)).exit_code == 0
    assert path.read_bytes() == before

    run(*lock_words(site, "--upgrade"))
    assert run(*diff_words(site)).exit_code == 0


def test_diff_names_hosts_that_joined_and_groups_that_are_new(site):
    run("lock", "--spec", site / "stack.yml", "--facts", site / "lab-apt.json", "-o", site / "stack.lock.yml")
    result = run(*diff_words(site))

    assert result.exit_code == 1
    assert result.stdout.startswith("rocky-9-x86_64-2330x8: new, 1 host")


def test_a_lock_with_a_wrong_type_names_the_line_inside_its_group(site):
    run(*lock_words(site))
    path = site / "stack.lock.yml"
    text = path.read_text().replace("nvswitches: false", "nvswitches: perhaps")
    path.write_text(text)
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "perhaps" in row)
    result = run("plan", "--lock", path, "--host", "lab-apt")

    assert result.exit_code == 64
    assert f"stack.lock.yml:{line}: ubuntu-22.04-x86_64-15f8x2: Expected `bool`" in result.stderr


def lock_words_with_a_vgpu(site):
    """The same with an unsupported host, vm01."""
    facts = host("ubuntu-22.04", "p100-pcie-x2", "vm01", vgpu_guest=True)
    (site / "vm01.json").write_bytes(msgspec.json.encode(facts))
    return lock_words(site, "--facts", site / "vm01.json")


def test_the_plans_of_all_hosts_are_written_in_one_call(site):
    """A refused host gets its conflicts where the others get their plan; each plan names its own host alone."""
    assert run(*lock_words_with_a_vgpu(site)).exit_code == 2

    result = run("plan", "--lock", site / "stack.lock.yml", "--all-hosts", site / "plans")

    assert result.exit_code == 0, result.output
    assert "rocky-9-x86_64-2330x8 (1 host): driver 620" in result.output
    written = {path.stem: json.loads(path.read_text()) for path in (site / "plans").glob("*.json")}
    assert set(written) == {"lab-apt", "lab-dnf", "vm01"}
    assert written["lab-dnf"]["hosts"] == ["lab-dnf"]
    assert "vGPU" in written["vm01"]["conflicts"][0]["because"]
    assert "hypervisor" in written["vm01"]["conflicts"][0]["try"]


def test_lock_and_plans_come_from_one_call_also_where_a_host_is_refused(site):
    """What make provision asks; the exit status stays the lock's own."""
    result = run(*lock_words_with_a_vgpu(site), "--all-hosts", site / "plans")

    assert result.exit_code == 2
    assert "rocky-9-x86_64-2330x8 (1 host): driver 620" in result.stdout
    assert {path.stem for path in (site / "plans").glob("*.json")} == {"lab-apt", "lab-dnf", "vm01"}
    assert (site / "stack.lock.yml").exists()


def test_a_bundle_without_a_folder_for_plans_is_a_usage_error(site):
    result = run(*lock_words(site), "--bundle", site)

    assert result.exit_code == 64
    assert "--all-hosts DIR" in result.stderr
    assert not (site / "stack.lock.yml").exists()


def test_plan_wants_exactly_one_of_host_group_and_every(site):
    run(*lock_words(site))

    result = run("plan", "--lock", site / "stack.lock.yml", "--all-hosts", site, "--host", "lab-apt")

    assert result.exit_code == 64
    assert not (site / "plans").exists()
