"""RDMA on a host: OFED by its packages, and the modules that the plan has loaded at boot."""

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.stubs import script

rdma = shared("rdma")
PEERMEM = {"path": "/etc/modules-load.d/gpucheck-nvidia-peermem.conf", "content": "nvidia_peermem\n"}
SUBNET = {"path": "/etc/modules-load.d/gpucheck-ib_umad.conf", "content": "# for nvlsm\nib-umad\n"}


@pytest.mark.parametrize(
    ("packages", "seen"),
    [
        ({"mlnx-ofa_kernel": "24.10-OFED.24.10.0.7.0.1.rhel9u4"}, "24.10-OFED.24.10.0.7.0.1.rhel9u4"),
        ({"kmod-mlnx-ofa_kernel": "25.01-1.el9"}, "25.01-1.el9"),
        ({"mlnx-ofed-kernel-dkms": "1:24.10.OFED.1-1"}, "24.10.OFED.1-1"),
        ({"mlnx-ofed-kernel-modules": "24.10-1"}, "24.10-1"),
        ({"doca-ofed": "2.9.1-1"}, "2.9.1-1"),
        # What compiles or configures alone, and what the distribution has itself.
        ({"mlnx-ofa_kernel-source": "1", "mlnx-ofed-kernel-utils": "1", "rdma-core": "50", "mlnx-tools": "1"}, None),
        ({}, None),
    ],
)
def test_ofed_is_told_by_the_package_of_its_kernel_part(tmp_path, packages, seen):
    assert rdma.ofed(packages, str(tmp_path)) == seen


def test_an_ofed_that_came_without_packages_is_told_by_its_program(tmp_path):
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/ofed_info").touch()

    assert rdma.ofed({}, str(tmp_path)) == "unknown"
    assert rdma.ofed({"doca-ofed": "2.9"}, str(tmp_path)) == "2.9"


def test_a_module_that_is_part_of_the_kernel_is_not_missing(tmp_path):
    folder = tmp_path / "lib/modules/6.8.0-1"
    folder.mkdir(parents=True)
    (folder / "modules.builtin").write_text("kernel/drivers/infiniband/core/ib-umad.ko\n")
    plan = {"files": [PEERMEM, SUBNET]}

    assert rdma.missing_modules(plan, ["nvidia"], "6.8.0-1", str(tmp_path)) == ["nvidia_peermem"]
    assert rdma.missing_modules(plan, ["nvidia"], "6.8.0-2", str(tmp_path)) == ["nvidia_peermem", "ib_umad"]


def test_a_planned_module_that_is_not_loaded_is_the_drivers_to_load(machine):
    """Planned and loaded: nothing to say."""
    path = machine.folder / "peermem.conf"
    path.write_text(PEERMEM["content"])
    path.chmod(0o644)
    machine.plan["files"].append({**PEERMEM, "path": str(path), "mode": "0644", "initramfs": False})
    machine.extras["modules"] = ["nvidia", "nvidia_peermem"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rdma, "MODULES_LOAD_D", str(machine.folder / "peermem"))
        assert "driver" not in machine.differences()

        machine.extras["modules"] = ["nvidia"]

        assert machine.differences()["driver"] == ["module nvidia_peermem is not loaded, planned at boot"]
        assert machine.compare()["host"]["modules_missing"] == ["nvidia_peermem"]


def test_loaded_modules_are_read_from_sysfs(tmp_path):
    assert rdma.loaded_modules(str(tmp_path)) == []
    (tmp_path / "sys/module/nvidia_peermem").mkdir(parents=True)
    assert rdma.loaded_modules(str(tmp_path)) == ["nvidia_peermem"]


def modinfo(tools, *known):
    """modinfo that finds these modules in any kernel."""
    text = f"#!/bin/sh\nfor last; do :; done\ncase ' {' '.join(known)} ' in *\" $last \"*) exit 0;; esac\nexit 1\n"
    script(tools / "modinfo", text)


@pytest.mark.parametrize(
    ("known", "loaded", "absent"),
    [
        ((), [], ["ib_umad", "mlx5_ib"]),
        (("mlx5_ib",), [], ["ib_umad"]),
        (("ib_umad", "mlx5_ib"), [], []),
        ((), ["ib_umad", "mlx5_ib"], []),
    ],
)
def test_modules_that_the_kernel_does_not_have_at_all(tmp_path, tools, known, loaded, absent):
    """Ubuntu's cloud kernels carry them in a package of their own; nvidia_peermem comes with the driver."""
    modinfo(tools, *known)
    plan = {"files": [PEERMEM, SUBNET]}

    assert rdma.absent_modules(plan, loaded, "6.8.0-1013-aws", str(tmp_path)) == absent
    assert rdma.absent_modules({"files": [PEERMEM]}, [], "6.8.0-1013-aws", str(tmp_path)) == []


def test_without_modinfo_nothing_is_said_of_modules(tmp_path, tools):
    assert rdma.absent_modules({"files": [SUBNET]}, [], "6.8.0-1013-aws", str(tmp_path)) == []


@pytest.mark.parametrize(
    ("path", "built"),
    [
        ("/lib/modules/6.8.0-60-generic/updates/dkms/mlx5_core.ko.zst", True),
        ("/lib/modules/5.14.0-570.el9.x86_64/extra/mlnx-ofa_kernel/drivers/net/mlx5_core.ko", True),
        ("/lib/modules/6.8.0-60-generic/kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko.zst", False),
        ("", True),
    ],
)
def test_ofed_is_built_where_the_kernel_would_not_load_its_own_driver(tools, path, built):
    """Without an answer nothing is said against it."""
    script(tools / "modinfo", f"#!/bin/sh\necho {path}\n")

    assert rdma.ofed_is_built("6.8.0-60-generic") is built
