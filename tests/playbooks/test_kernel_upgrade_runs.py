"""kernel: keep and upgrade in whole runs: refused with the way out, announced by make plan, before the driver."""

import pytest

from tests.playbooks.hostile import Site, state

pytestmark = pytest.mark.slow

NEW = "5.15.0-200-generic"


def without_headers():
    """A host whose sources have lost the headers of its kernel."""
    found = state({"driver": ["linux-headers-5.15.0-1-generic is needed to build the module"]})
    lost = ["linux-headers-5.15.0-1-generic"]
    found["host"].update(headers_missing=lost, headers_unavailable=lost, modules_packages=[], modules_unavailable=[])
    found["host"].update(kernel="5.15.0-1-generic", wrong_files=[], space=[], managed=[])
    return found


def site(tmp_path, kernel, **answer):
    made = Site(tmp_path, {})
    made.host(
        "node01",
        plan_state=without_headers(),
        kernel_upgrade={"changed": False, "packages": [], "headers": [], **answer},
    )
    with (tmp_path / "stack.yml").open("a") as file:
        file.write(f"kernel: {kernel}\n")
    return made


@pytest.mark.more
def test_keep_refuses_and_names_the_way_out(tmp_path):
    made = site(tmp_path, "keep", release=NEW, reason="")

    done = made.run("provision.yml", "--skip-tags", "verify")

    words = " ".join(done.stdout.split())
    assert "without its headers no module can be built" in words, done.stdout + done.stderr
    assert "or set kernel: upgrade in stack.yml" in words
    assert "kernel_upgrade" not in made.asked("node01")
    assert made.document("reports/provision.json")["hosts"]["node01"]["state"] == "refused"


@pytest.mark.more
@pytest.mark.parametrize(
    ("answer", "arguments", "expected"),
    [
        (
            {"release": "", "reason": "no kernel metapackage is installed"},
            ("--skip-tags", "verify"),
            "kernel: upgrade is set, and no kernel metapackage is installed.",
        ),
        (
            {"release": NEW, "reason": ""},
            ("--check",),
            f"would be upgraded to {NEW}, because no package source has its headers. The host reboots before",
        ),
    ],
    ids=["no kernel", "plan"],
)
def test_upgrade_names_the_kernel_that_comes_first_or_why_there_is_none(tmp_path, answer, arguments, expected):
    made = site(tmp_path, "upgrade", **answer)

    done = made.run("provision.yml", *arguments)

    assert expected in " ".join(done.stdout.split()), done.stdout + done.stderr
    assert made.asked("node01").count("kernel_upgrade") == 1


@pytest.mark.more
def test_the_kernel_comes_before_the_driver_and_nothing_follows_without_its_reboot(tmp_path):
    """Ansible runs on this host itself, so nobody reboots it: the driver is not built for the old kernel."""
    made = site(tmp_path, "upgrade", release=NEW, reason="")

    done = made.run("provision.yml", "--skip-tags", "verify", "-e", "preflight_idle_delay_s=0")

    asked = made.asked("node01")
    words = " ".join(done.stdout.split())
    assert asked.count("kernel_upgrade") == 3, done.stdout + done.stderr
    last = len(asked) - 1 - asked[::-1].index("kernel_upgrade")
    assert "planned_packages" in asked[:last]
    assert "planned_packages" not in asked[last:]
    assert (
        f"kernel {NEW} is installed, but 5.15.0-1-generic is running. Ansible runs on this host: reboot it yourself"
        in words
    )
