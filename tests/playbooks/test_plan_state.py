"""Comparing a host with its plan: every kind of difference is seen, and a host that is as planned has none."""

import pytest

from tests.playbooks.planned import DRIVER, VERSION, compare_code


def test_a_host_that_is_as_planned_has_no_differences(machine):
    answer = machine.compare()

    assert answer["differences"] == {}
    assert answer["reboot"] == []
    assert answer["host"]["requirements_current"]


def test_a_host_that_a_run_drained_and_did_not_return_differs_until_it_is_back_in_service(machine):
    """Nothing else differs once its set is in place, so that no later run would touch it."""
    (machine.folder / "drained.json").write_text("8\n")

    answer = machine.compare()

    assert answer["differences"] == {"drain": ["an earlier run drained the host, and did not return it to service"]}
    assert answer["host"]["drained_gpus"] == "8"


@pytest.mark.parametrize(
    ("break_it", "role", "word"),
    [
        (lambda m: m.extras["packages"].pop("libnccl2"), "nccl", "libnccl2 2.29.3-1+cuda12.9 is not installed"),
        (lambda m: m.extras["packages"].update(libnccl2="2.32.3-1+cuda13.4"), "nccl", "libnccl2 is 2.32.3-1+cuda13.4"),
        (lambda m: m.facts["holds"].remove("libnccl2"), "nccl", "libnccl2 is not held"),
        (lambda m: m.facts["driver"].update(loaded_version=None), "driver", "no nvidia module is loaded"),
        (
            lambda m: m.facts["driver"].update(installed_version=None),
            "driver",
            "no nvidia module is built for kernel 5.15",
        ),
        (lambda m: m.facts["driver"].update(loaded_flavour="open"), "driver", "the loaded module is 580.178.04 open"),
        (lambda m: m.facts.update(headers=[]), "driver", "linux-headers-5.15.0-179-generic is needed"),
        (lambda m: (m.folder / "nouveau.conf").write_text(""), "driver", "nouveau.conf is missing or different"),
        (lambda m: (m.folder / "nouveau.conf").chmod(0o600), "driver", "nouveau.conf is missing or different"),
        (
            lambda m: m.services["nvidia-persistenced"].update(ActiveState="failed"),
            "driver",
            "is failed, planned started",
        ),
        (lambda m: m.services["nvidia-persistenced"].update(UnitFileState="disabled"), "driver", "is not enabled"),
        (lambda m: m.tools.clear(), "driver", "nvidia-smi is missing"),
        (lambda m: m.lose_library(), "driver", "libnvidia-ml.so.1 is installed, but the loader does not find it"),
        (lambda m: m.extras["unfinished"].append("nvidia-dkms-580"), "driver", "a package transaction was interrupted"),
        (lambda m: (m.folder / "initramfs-pending").write_text("x"), "driver", "the initramfs is older"),
        (lambda m: (m.folder / "reboot-required").write_text("files"), "driver", "reboot needed: files"),
        (lambda m: (m.folder / "key.gpg").unlink(), "repository", "is missing"),
        (lambda m: (m.folder / "nvidia-cuda.list").write_text("deb x /\n"), "repository", "is missing or different"),
        (lambda m: (m.folder / "marker").write_text("def"), "gpucheck", "not installed from the planned"),
        (lambda m: (m.folder / "stack.json").write_text("{}"), "gpucheck", "does not contain this plan"),
        (lambda m: (m.folder / "stack.json").write_text("{"), "gpucheck", "does not contain this plan"),
    ],
)
def test_each_difference_is_seen_by_the_role_that_removes_it(machine, break_it, role, word):
    break_it(machine)

    differences = machine.differences()

    assert set(differences) == {role}
    assert any(word in sentence for sentence in differences[role]), differences


def test_another_driver_version_beside_the_planned_one_is_a_stray(machine):
    """A library of another branch that was left behind is found; the toolkit's and a metapackage's numbers are not."""
    machine.extras["packages"].update(
        {
            "libnvidia-compute-570": "570.133.20-0ubuntu1",
            "nvidia-container-toolkit": "1.18.1-1",
            "nvidia-settings": "510-1",
            "nvidia-detect": "535.216.01-1~deb12u1",
        }
    )

    assert machine.differences() == {
        "driver": ["libnvidia-compute-570 570.133.20-0ubuntu1 is of another driver version"]
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nouveau_loaded": True}, "nouveau or nova is loaded"),
        ({"driver": {**DRIVER, "loaded_version": "570.1.2"}}, "the loaded module is 570.1.2 proprietary"),
        ({"driver": {**DRIVER, "installed_flavour": "open"}}, "the installed one 580.178.04 open"),
    ],
)
def test_the_reboot_rule_is_the_plans(machine, change, reason):
    """Each reason holds only while the plan's rule names it."""
    machine.facts.update(change)
    (found,) = machine.compare()["reboot"]
    assert reason in found

    machine.plan["reboot"]["when"] = []
    assert machine.compare()["reboot"] == []


def test_only_files_of_the_initramfs_ask_for_its_rebuild(machine):
    """A changed apt preference must not reboot a host."""
    machine.plan["files"].append(
        {"path": str(machine.folder / "pin"), "content": "x", "mode": "0644", "initramfs": False}
    )
    assert machine.compare()["host"]["wrong_initramfs_files"] == []
    assert machine.compare()["host"]["wrong_files"] == [str(machine.folder / "pin")]

    (machine.folder / "nouveau.conf").unlink()
    assert machine.compare()["host"]["wrong_initramfs_files"] == [str(machine.folder / "nouveau.conf")]


@pytest.mark.parametrize(
    "name",
    ["nvidia-dkms-580", "nvidia-dkms-580-open", "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms", "nvidia-open-dkms"],
)
def test_the_package_that_builds_the_module_is_known(machine, name):
    machine.plan["components"]["driver"]["packages"] = [
        {"name": name, "version": VERSION, "spec": ""},
        {"name": "nvidia-utils-580", "version": VERSION, "spec": ""},
    ]

    assert machine.compare()["host"]["build_again"] == ["dpkg-reconfigure", "--frontend", "noninteractive", name]


def test_a_package_without_a_planned_version_is_locked_as_it_was_installed(machine):
    """nvlsm has a version of its own that no table knows: the newest is taken, then it stays."""
    machine.plan["package_manager"] = "dnf"
    machine.plan["components"]["fabric_manager"] = {
        "packages": [{"name": "nvlsm", "version": None, "spec": "nvlsm"}],
        "holds": ["nvlsm"],
    }
    assert "nvlsm (newest) is not installed" in machine.differences()["driver"]
    assert machine.compare()["components"]["fabric_manager"]["missing"] == []

    machine.extras["packages"]["nvlsm"] = "2025.06.5-1"
    assert machine.compare()["components"]["fabric_manager"]["missing"] == ["nvlsm-2025.06.5-1.*"]


def test_version_locks_are_compared_by_entry(machine):
    """dnf writes an epoch of 0 that rpm does not show; a lock on another version keeps the planned one out."""
    machine.plan["package_manager"] = "dnf"
    machine.extras["locks"] = [
        "nvidia-dkms-580-0:580.178.04-1ubuntu1.*",
        "libnccl2-2.28.1-1+cuda12.9.*",
        "kernel-5-1.*",
    ]

    answer = machine.compare()

    # What came along with the driver is locked, too.
    came = ["libnvidia-cfg1-580-580.178.04-1ubuntu1.*"]
    assert answer["components"]["driver"] == {"packages": [], "missing": came, "stale": []}
    assert answer["components"]["nccl"] == {
        "packages": [],
        "missing": ["libnccl2-2.29.3-1+cuda12.9.*"],
        "stale": ["libnccl2-2.28.1-1+cuda12.9.*"],
    }


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n", "580-open"),
        ("[nvidia-driver]\nname=nvidia-driver\nstream=580-dkms\nprofiles=\nstate=disabled\n", None),
        ("[other]\nstream=580-open\nstate=enabled\n", None),
        ("", None),
    ],
)
def test_the_enabled_stream_is_read_from_dnf_itself(machine, content, seen):
    (machine.folder / "nvidia-driver.module").write_text(content)
    machine.plan["module_stream"] = {"module": "nvidia-driver", "stream": "580-open"}

    answer = machine.compare()

    assert answer["host"]["module_stream"] == seen
    assert ("driver" in answer["differences"]) is (seen != "580-open")


def test_a_document_that_is_no_plan_is_refused(machine):
    machine.plan["schema"] = "gpucheck.plan/9"

    with pytest.raises(ValueError, match=r"gpucheck.plan/9"):
        machine.compare()


@pytest.mark.parametrize(
    ("name", "versions", "erased"),
    [
        ("nvidia-dkms-580", ["580.178.04-1ubuntu1", "580.95.05-1"], ["nvidia-dkms-580-580.95.05-1"]),
        ("libnvidia-cfg", ["3:580.178.04-1.el9", "3:580.95.05-1.el9"], ["libnvidia-cfg-3:580.95.05-1.el9"]),
        ("glibc", ["2.34-1", "2.34-2"], ["glibc-2.34-1"]),
    ],
)
def test_of_a_package_that_is_there_twice_the_planned_version_stays(machine, name, versions, erased):
    """Planned by name, by the driver it belongs to, or else the one that was installed last."""
    machine.extras["doubled"] = {name: versions}

    assert machine.compare()["host"]["superfluous"] == erased


def test_a_file_that_would_change_is_shown_as_it_is_and_as_it_is_planned(machine):
    (machine.folder / "nouveau.conf").write_text("options nouveau modeset=1\n")

    (shown,) = compare_code.changes(machine.plan, machine.compare())

    assert (shown["before"], shown["after"]) == ("options nouveau modeset=1\n", "blacklist nouveau\n")
    assert shown["after_header"] == str(machine.folder / "nouveau.conf")


@pytest.mark.parametrize(
    "change", [{"installed_version": None}, {"installed_version": "570.1"}, {"installed_flavour": "open"}]
)
def test_a_module_of_another_version_or_flavour_has_to_be_built_again(machine, change):
    """After a power cut the packages may be the planned ones, and the module still the one before; seen in the lab."""
    assert machine.compare()["host"]["module_planned"] is True

    machine.facts["driver"].update(change)

    assert machine.compare()["host"]["module_planned"] is False


OLDER, NEWER = "5.15.0-9-generic", "5.15.0-1021-generic"


def test_a_newer_kernel_that_is_installed_needs_headers_and_a_module_too(machine):
    """The next boot takes it; an older one is nobody's business. Kernel releases are ordered by number."""
    machine.facts["kernels"] = [NEWER, "5.15.0-179-generic", OLDER]

    assert machine.compare()["host"]["headers_missing"] == [f"linux-headers-{NEWER}"]
    assert machine.compare()["differences"]["driver"] == [f"linux-headers-{NEWER} is needed to build the module"]

    machine.facts["headers"].append(NEWER)
    assert machine.compare()["host"]["kernels_without_module"] == [NEWER]
    assert f"no module is built for kernel {NEWER}" in machine.compare()["differences"]["driver"][0]

    machine.facts["dkms"]["580.178.04"].append(NEWER)
    assert machine.compare()["differences"] == {}


@pytest.mark.parametrize(
    ("planned", "running", "newer", "missing"),
    [
        ("kernel-64k-devel-matched-5.14.0-5.el9.aarch64", "5.14.0-5.el9.aarch64+64k", "5.14.0-9.el9.aarch64+64k", 2),
        ("kernel-rt-devel-5.14.0-5.el9.x86_64", "5.14.0-5.el9.x86_64+rt", "5.14.0-9.el9.x86_64+rt", 2),
        ("kernel-debug-devel-matched-5.14.0-5.el9.x86_64", "5.14.0-5.el9.x86_64+debug", "5.14.0-9.el9.x86_64", 1),
        ("kernel-devel-matched-5.14.0-5.el9.aarch64", "5.14.0-5.el9.aarch64", "5.14.0-9.el9.aarch64+64k", 1),
        ("linux-headers-6.6.20+rpt-rpi-v8", "6.6.20+rpt-rpi-v8", "6.6.31+rpt-rpi-v8", 2),
    ],
)
def test_headers_of_a_kernel_variant_bear_the_release_without_it(machine, planned, running, newer, missing):
    """Another variant boots only where a person chose it."""
    machine.plan["headers"] = [planned]
    machine.facts.update(kernel=running, kernels=[running, newer], headers=[])
    later = planned.replace("5.14.0-5", "5.14.0-9").replace("6.6.20", "6.6.31")

    assert machine.compare()["host"]["headers_missing"] == [planned, later][:missing]

    machine.facts["headers"] = [running, newer]
    assert machine.compare()["host"]["headers_missing"] == []


def test_a_compiler_that_dkms_needs_is_part_of_the_plan(machine):
    machine.plan["compilers"] = ["g++"]

    assert machine.compare()["host"]["compilers_missing"] == ["g++"]
    assert "g++ is needed to build the module" in machine.compare()["differences"]["driver"]

    machine.extras["packages"]["g++"] = "4:11.2.0-1ubuntu1"
    assert machine.compare()["host"]["compilers_missing"] == []
    assert "driver" not in machine.compare()["differences"]


def test_a_driver_that_dkms_does_not_build_asks_for_no_module_of_a_newer_kernel(machine):
    machine.facts.update(kernels=[NEWER], headers=[NEWER, "5.15.0-179-generic"], dkms={})

    assert machine.compare()["differences"] == {}


def test_a_driver_that_is_kept_differs_in_nothing_and_its_files_come_with_cuda(machine):
    """Whatever the site did to it."""
    machine.plan["components"]["driver"] = {"packages": [], "holds": []}
    machine.plan["stack"]["driver"] = {"version": "550.54.15", "kept": True}
    machine.facts["driver"].update(loaded_version="550.90.07", installed_version=None)
    machine.facts["headers"] = []
    machine.tools.clear()
    assert "driver" not in machine.differences()

    (machine.folder / "nouveau.conf").unlink()
    found = machine.compare()
    assert found["differences"]["cuda"] == [f"{machine.folder}/nouveau.conf is missing or different"]
    assert "driver" not in found["differences"]
    assert found["host"]["refusals"] == []


def test_a_driver_that_gpucheck_installed_is_not_the_sites_to_keep(machine):
    machine.plan["stack"]["driver"] = {"version": "580.178.04", "kept": True}
    (machine.folder / "installed.json").write_text('{"packages": {"nvidia-dkms-580": "1", "libnccl2": "2"}}')

    (words,) = machine.compare()["host"]["refusals"]
    assert "gpucheck installed the driver of this host (nvidia-dkms-580)" in words
