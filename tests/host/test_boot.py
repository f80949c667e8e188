"""Kernels, DKMS and Secure Boot, from trees made by hand."""

import pytest

from gpucheck.host.driver import read_dkms, read_kernels, read_secure_boot
from gpucheck.model import DkmsModule, InstalledKernel

OLD, NEW = "5.15.0-97-generic", "5.15.0-113-generic"


def test_kernels_are_ordered_by_number_and_leftovers_are_none(tmp_path):
    for release in (OLD, NEW):
        (tmp_path / "lib/modules" / release / "kernel").mkdir(parents=True)
    (tmp_path / "lib/modules" / NEW / "build").mkdir()
    (tmp_path / "lib/modules" / OLD / "updates/dkms").mkdir(parents=True)
    (tmp_path / "lib/modules" / OLD / "updates/dkms/nvidia.ko").write_text("version=580.95.05\n")
    (tmp_path / "lib/modules/5.15.0-91-generic/updates").mkdir(parents=True)

    assert read_kernels(tmp_path, OLD, simulated=True) == (
        InstalledKernel(release=OLD, running=True, headers=False, nvidia="580.95.05"),
        InstalledKernel(release=NEW, running=False, headers=True, nvidia=None),
    )


def test_updated_kernel_of_an_enterprise_release_boots_next(tmp_path):
    """A word and a number in the same place: rpm takes the number as newer."""
    first, update = "5.14.0-503.el9.x86_64", "5.14.0-503.11.1.el9_5.x86_64"
    for release in (first, update):
        (tmp_path / "lib/modules" / release / "kernel").mkdir(parents=True)
    assert [kernel.release for kernel in read_kernels(tmp_path, first, simulated=True)] == [first, update]


def test_link_to_headers_that_are_gone_is_no_headers(tmp_path):
    """The package was removed and its link stayed: DKMS fails then."""
    (tmp_path / "lib/modules" / NEW / "kernel").mkdir(parents=True)
    (tmp_path / "lib/modules" / NEW / "build").symlink_to(tmp_path / "usr/src/gone")

    assert not read_kernels(tmp_path, NEW, simulated=True)[0].headers


def test_no_modules_at_all(tmp_path):
    assert read_kernels(tmp_path, NEW, simulated=True) == ()


def test_states_of_dkms(tmp_path):
    """As ``dkms status`` judges: added by the source, built by the module, installed by the link to this version."""
    tree = tmp_path / "var/lib/dkms/nvidia"
    for version in ("580.95.05", "575.57.08"):
        (tree / version).mkdir(parents=True)
        (tree / version / "source").symlink_to(f"/usr/src/nvidia-{version}")
    for kernel in (OLD, NEW):
        (tree / "580.95.05" / kernel / "x86_64/module").mkdir(parents=True)
    (tree / "575.57.08" / OLD / "x86_64/module").mkdir(parents=True)
    (tree / f"kernel-{OLD}-x86_64").symlink_to(f"580.95.05/{OLD}/x86_64")

    assert read_dkms(tmp_path) == (
        DkmsModule(name="nvidia", version="575.57.08", state="built", kernel=OLD),
        DkmsModule(name="nvidia", version="580.95.05", state="built", kernel=NEW),
        DkmsModule(name="nvidia", version="580.95.05", state="installed", kernel=OLD),
    )


def test_failed_build_is_only_added(tmp_path):
    tree = tmp_path / "var/lib/dkms/nvidia/580.95.05"
    (tree / NEW / "x86_64/log").mkdir(parents=True)
    (tree / "source").symlink_to("/usr/src/nvidia-580.95.05")

    assert read_dkms(tmp_path) == (DkmsModule(name="nvidia", version="580.95.05", state="added"),)


@pytest.mark.parametrize(
    ("content", "answer"), [(b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\x00", False), (b"\x06\0\0\0", None)]
)
def test_secure_boot_is_the_firmwares_variable(tmp_path, content, answer):
    variables = tmp_path / "sys/firmware/efi/efivars"
    variables.mkdir(parents=True)
    (variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(content)

    assert read_secure_boot(tmp_path) is answer


def test_machine_without_efi_has_no_secure_boot(tmp_path):
    (tmp_path / "sys/firmware/acpi").mkdir(parents=True)

    assert read_secure_boot(tmp_path) is False


def test_container_without_firmware_folder_does_not_tell(tmp_path):
    assert read_secure_boot(tmp_path) is None
