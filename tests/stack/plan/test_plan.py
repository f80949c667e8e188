"""The plan: what the golden files cannot say by themselves."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpucheck.knowledge.packages import packages
from gpucheck.stack import Refusal, StackSpec
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import NoSuchHost, Plan, plan
from gpucheck.stack.settings.tuning import Tuning
from gpucheck.stack.spec import Repository
from tests.stack import asked
from tests.stack.asked import rejected
from tests.stack.hosts import host


def planned(system, gpus, spec=None, **changes) -> Plan:
    """The plan; fails the test if it was refused."""
    # The fingerprint of NVIDIA's key for EL 10 is not known: a site has to state it.
    el10 = {"nvidia-cuda": Repository(key_fingerprint="E1" * 20)} if system.endswith("-10") else {}
    return asked.planned(spec or StackSpec(repositories=el10), system, gpus, **changes)


def test_names_change_at_590():
    """Ubuntu's packages lose the branch suffix."""
    names = [
        p["name"] for p in planned("ubuntu-24.04", "t4-x1", StackSpec(driver="595")).components["driver"]["packages"]
    ]

    assert names == ["nvidia-driver-pinning-595.91.07", "libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced"]


def test_headers_belong_to_the_running_kernel_of_each_host():
    first = host("ubuntu-22.04", "t4-x1", "a", kernel="5.15.0-1-generic")
    second = host("ubuntu-22.04", "t4-x1", "b", kernel="5.15.0-2-generic")
    made = lock(StackSpec(), [first, second])

    one, all_of_them = plan(made, host="b"), plan(made, group="ubuntu-22.04-x86_64-1eb8x1")

    assert one.headers == ("linux-headers-5.15.0-2-generic",)
    assert all_of_them.headers == (
        "linux-headers-5.15.0-1-generic",
        "linux-headers-5.15.0-2-generic",
    )


def test_a_sites_mirror_replaces_url_and_key():
    """NVIDIA's fingerprint goes, as the mirror signs with its own key; the more exact name wins."""
    mirror = Repository(
        url="http://mirror/cuda/{distro}/{arch}/", key_url="http://mirror/key.asc", key_fingerprint="AB" * 20
    )
    spec = StackSpec(repositories={"nvidia-cuda": mirror, "cuda-rhel9-x86_64": Repository(key_fingerprint="CD" * 20)})
    apt = planned("ubuntu-22.04", "t4-x1", spec).repositories[0]
    dnf = planned("rocky-9", "t4-x1", spec).repositories[0]

    assert (apt["url"], apt["key_fingerprint"]) == ("http://mirror/cuda/ubuntu2204/x86_64/", "AB" * 20)
    assert (dnf["name"], dnf["url"]) == ("cuda-rhel9-x86_64", "http://mirror/cuda/rhel9/x86_64/")
    assert dnf["key_fingerprint"] == "CD" * 20


@pytest.mark.parametrize("system", sorted(packages().repositories.keys))
def test_every_known_fingerprint_ends_with_the_name_of_its_key_file(system):
    key = packages().repositories.keys[system]
    if key.fingerprint is None:
        assert key.unconfirmed
    else:
        assert len(key.fingerprint) == 40
        assert key.fingerprint.endswith(key.file.removesuffix(".pub").upper())


def test_what_is_signed_follows_the_publisher_and_the_sites_mirror():
    """NVIDIA signs CUDA packages and their metadata, and of the toolkit repository the metadata alone."""
    nvidia = planned("rocky-9", "t4-x1").repositories
    mirror = planned(
        "rocky-9", "t4-x1", StackSpec(repositories={"nvidia-cuda": Repository(signed="packages")})
    ).repositories

    assert [repository["signed"] for repository in nvidia] == ["both", "metadata"]
    assert [repository["signed"] for repository in mirror] == ["packages", "metadata"]
    assert all("signed" not in repository for repository in planned("ubuntu-22.04", "t4-x1").repositories)


def test_component_set_to_none_has_no_packages():
    """none leaves out; without a toolkit there is no cuDNN and no NCCL either."""
    found = planned("rocky-9", "t4-x1", StackSpec(cuda="none", container_toolkit="none"))

    assert [name for name, part in found.components.items() if part["packages"]] == ["driver"]
    assert [repository["name"] for repository in found.repositories] == ["cuda-rhel9-x86_64"]


def test_parts_of_rdma_core_are_installed_and_not_held():
    """Held, they would stand in the way of the next DOCA or rdma-core."""
    fabric = planned("ubuntu-24.04", "b200-x8").components["fabric_manager"]

    assert {"infiniband-diags", "libibumad3"} <= {package["name"] for package in fabric["packages"]}
    assert fabric["holds"] == ["nvidia-fabricmanager", "libnvidia-nscq", "nvlsm"]


def test_nothing_of_the_toolkit_moves_by_an_unattended_upgrade():
    """Only cuda-toolkit-13-0 is held, and what it depends on has no fixed version."""
    files = {file["path"]: file["content"] for file in planned("ubuntu-24.04", "t4-x1").files}
    patterns = re.findall(r'"(.+)";', files["/etc/apt/apt.conf.d/51gpucheck-nvidia"])

    for name in ("libcublas-13-0", "libcufft-13-0", "libnvjitlink-13-0", "nsight-compute-2025.3.1", "gds-tools-13-0"):
        assert any(re.match(pattern, name) for pattern in patterns), name


def test_nvlink_5_boards_load_ib_umad_and_start_fabric_manager():
    """The subnet manager has no unit of its own."""
    found = planned("ubuntu-24.04", "b200-x8")

    assert [file["content"] for file in found.files if "modules-load" in file["path"]] == ["ib_umad\n"]
    assert [service["name"] for service in found.services] == ["nvidia-persistenced", "nvidia-fabricmanager"]


def test_only_the_nouveau_file_changes_the_initramfs():
    """Rebuilding it is slow and needs a reboot to matter."""
    files = {file["path"]: file["initramfs"] for file in planned("ubuntu-24.04", "b200-x8").files}

    assert [path for path, initramfs in files.items() if initramfs] == ["/etc/modprobe.d/gpucheck-nouveau.conf"]


def mirror(name: str) -> dict[str, Any]:
    return {"repositories": {name: Repository(url="https://mirror/", key_url="https://mirror/key")}}


NVSDM = {"driver": "575.57.08", "cuda": "12.9", "driver_extra": ("nvsdm",)}


@pytest.mark.parametrize(
    ("system", "gpus", "spec", "because", "advice"),
    [
        # 0ubuntu1 or 1ubuntu1 follows no rule.
        ("ubuntu-22.04", "t4-x1", {"driver": "580.130.01"}, "revision of driver 580.130.01", "apt-cache madison"),
        # Older branches had other names.
        ("ubuntu-22.04", "t4-x1", {"driver": "570"}, "package names of driver branch 570", ""),
        ("centos-7", "v100-sxm2-x8", {"driver": "535", "end_of_life_os": "allow"}, "names of driver branch 535", ""),
        # The fingerprint of NVIDIA's key for EL 10 is not known, and a mirror has its own key.
        ("rocky-10", "t4-x1", {}, "no fingerprint", "nvidia-cuda.key_fingerprint"),
        ("ubuntu-22.04", "t4-x1", mirror("nvidia-cuda"), "no fingerprint", "nvidia-cuda.key_fingerprint"),
        ("rhel-9", "t4-x1", mirror("epel"), "no fingerprint", "epel.key_fingerprint"),
        ("ubuntu-22.04", "t4-x1", NVSDM, "packages of driver_extra nvsdm on Ubuntu 22.04", "without nvsdm"),
        ("debian-12", "t4-x1", {"source": "debian", "driver_extra": ("video",)}, "driver_extra in the archive", ""),
        ("ubuntu-22.04", "gh200-x1", {"tuning": Tuning(iommu="off")}, "makes the IOMMU off on sbsa", "passthrough"),
    ],
)
def test_unknown_name_version_or_key_is_rejected_with_advice(system, gpus, spec, because, advice):
    conflict = rejected(StackSpec(**spec), system, gpus)

    assert because in conflict.because
    assert advice in conflict.try_


def test_kernel_of_an_unknown_variant_is_rejected_with_the_known_ones():
    conflict = rejected(StackSpec(), "rhel-9", "t4-x1", kernel="5.14.0-503.el9.x86_64+kvm")

    assert "headers of kernel 5.14.0-503.el9.x86_64+kvm are not known" in conflict.because
    assert "64k" in conflict.try_


def test_stated_revision_and_fingerprint_are_used():
    revision = planned("ubuntu-22.04", "t4-x1", StackSpec(driver="580.130.01-0ubuntu1"))
    own_key = StackSpec(repositories={"nvidia-cuda": Repository(key_fingerprint="AB" * 20)})

    assert revision.components["driver"]["packages"][1]["spec"] == "libnvidia-compute-580=580.130.01-0ubuntu1"
    assert planned("rocky-10", "t4-x1", own_key).repositories[0]["key_fingerprint"] == "AB" * 20


def test_a_lock_edited_by_hand_is_refused():
    made = lock(StackSpec(), [host("rocky-9", "h100-sxm5-x8")])
    name, group = next(iter(made.groups.items()))
    broken = msgspec.structs.replace(group, stack=msgspec.structs.replace(group.stack, fabric_manager="570.86.15"))
    found = plan(msgspec.structs.replace(made, groups={name: broken}), host="node01")

    assert isinstance(found, Refusal)
    assert "exactly the driver's version" in found.conflicts[0].because


def test_a_host_that_is_not_in_the_lock_is_named_with_those_that_are():
    made = lock(StackSpec(), [host("rocky-9", "t4-x1")])

    with pytest.raises(NoSuchHost, match=r"'other'.*node01"):
        plan(made, host="other")
    with pytest.raises(NoSuchHost, match="rocky-9-x86_64-1eb8x1"):
        plan(made, group="other")


def test_the_order_is_the_one_in_which_the_playbooks_apply_it():
    def roles_of(file: str) -> Iterator[str]:
        for task in yaml.safe_load((Path("playbooks/tasks") / file).read_text(encoding="utf-8")):
            if "ansible.builtin.include_role" in task:
                role = task["ansible.builtin.include_role"]["name"].removeprefix("gpucheck.provision.")
                # One transaction of several components, which the plan names one by one.
                yield from re.findall(r"'(\w+)'", task["vars"]["packages_components"]) if role == "packages" else [role]
            elif isinstance(task.get("ansible.builtin.include_tasks"), str):
                yield from roles_of(task["ansible.builtin.include_tasks"])

    roles = [*roles_of("prepare.yml"), *roles_of("apply.yml")]
    order = planned("rocky-9", "h100-sxm5-x8").order

    assert {"cuda", "nccl", "container_toolkit"} <= set(roles)
    assert tuple(role for role in roles if role in order) == order
