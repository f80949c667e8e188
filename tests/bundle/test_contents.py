"""What belongs into a bundle, and whether a bundle serves a plan."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.bundle import contents
from gpucheck.bundle.contents import BundledFile, BundleError, read_manifest, write_manifest
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.spec import StackSpec
from gpucheck.stack.types import Refusal
from tests.bundle.site import host_plan, manifest, site_lock, versions_of
from tests.stack.hosts import host

APT, DNF = "ubuntu-22.04-x86_64-15f8x2", "rocky-9-x86_64-2330x8"


@pytest.mark.parametrize("name", ["lab-apt", "lab-dnf"])
def test_an_order_names_every_planned_package_with_its_version(name):
    one = host_plan(name)
    found = contents.order(one, name)

    assert set(found.wanted) == {p["spec"] for part in one.components.values() for p in part["packages"]}
    assert len(found.wanted) > 10
    assert {*one.headers, *one.compilers} < set(found.optional)
    assert found.repositories == one.repositories


def test_where_no_package_brings_a_source_of_dkms_the_planned_one_is_used():
    found = plan(lock(StackSpec(), [host("rhel-9", "t4-x1")]), host="node01")

    assert isinstance(found, Plan)
    assert found.dkms_source
    assert contents.order(found, "node01").repositories == (*found.repositories, found.dkms_source["repository"])


def test_groups_are_chosen_by_pattern_and_a_mistyped_one_is_named_with_those_there_are():
    made = site_lock()

    assert contents.chosen_groups(made, []) == [DNF, APT]
    assert contents.chosen_groups(made, ["rocky-*"]) == [DNF]
    assert contents.chosen_groups(made, ["*15f8*", DNF]) == [DNF, APT]
    with pytest.raises(BundleError, match=rf"no group 'rocki-\*' in the lock. It has: {DNF}, {APT}"):
        contents.chosen_groups(made, [APT, "rocki-*"])


def test_the_first_host_of_the_group_that_answers_collects_else_one_of_the_same_system():
    found = plan(site_lock(), group=APT)
    assert isinstance(found, Plan)
    # What a host says of itself and what the tables call it differ.
    assert contents.system_of_host(host("oracle-9", "gh200-x1")) == "ol-9-sbsa"
    own, other = "ubuntu-22.04-x86_64", "rocky-9-x86_64"

    assert contents.collector(found, {"staging": own, "lab-apt": own}) == "lab-apt"
    assert contents.collector(found, {"lab-dnf": other, "staging": own}) == "staging"
    # Reinstalled since: what it would collect is for another system.
    assert contents.collector(found, {"lab-apt": other, "staging": own}) == "staging"
    with pytest.raises(BundleError, match=f"group {APT}: no host with {own} responds"):
        contents.collector(found, {"lab-dnf": other})


@pytest.mark.parametrize(("name", "kind"), [("lab-apt", "apt"), ("lab-dnf", "dnf")])
def test_a_plan_that_the_bundle_serves_has_it_as_its_one_source_and_is_the_same_otherwise(name, kind):
    one = host_plan(name)
    found = contents.bundled_plan(one, manifest("lab-apt", "lab-dnf"), "build/bundle")

    assert isinstance(found, Plan)
    (repository,) = found.repositories
    assert (repository["name"], repository["kind"]) == ("gpucheck-bundle", kind)
    assert str(repository["url"]).startswith("file:")
    assert repository["key_fingerprint"] == "AB" * 20
    assert found.prerequisites == ()
    assert not found.dkms_source
    # It has no later kernel.
    assert not found.header_metapackage
    names = ("repositories", "prerequisites", "dkms_source", "header_metapackage")
    left_out = {name: getattr(one, name) for name in names}
    assert msgspec.structs.replace(found, **left_out) == one


@pytest.mark.parametrize(
    ("spec", "planned"),
    [({"driver": "580.95.05"}, "580.95.05"), ({"cudnn": "none"}, "no libcudnn9"), ({"torch": "none"}, "no torch")],
)
def test_a_lock_out_of_step_is_refused_with_what_differs(spec, planned):
    found = contents.bundled_plan(host_plan("lab-apt", **spec), manifest("lab-apt"), "build/bundle")

    assert isinstance(found, Refusal)
    (conflict,) = found.conflicts
    assert "out of step" in conflict.because
    assert planned in conflict.because
    assert "copy build/bundle/stack.lock.yml over your lock" in conflict.try_


def test_a_planned_package_that_was_not_collected_stops_the_making():
    one = host_plan("lab-apt")
    versions = {name: v for name, v in versions_of(one).items() if name != "libnccl2"}

    with pytest.raises(BundleError, match="libnccl2 was planned but not collected"):
        contents.bundled_group(one, versions)
    with pytest.raises(BundleError, match="libnccl2 was planned but not collected"):
        contents.bundled_group(one, {**versions, "libnccl2": ("2.18.3-1",)})


@pytest.mark.parametrize("name", ["lab-apt", "lab-dnf"])
def test_headers_count_as_bundled_only_where_they_were_collected(name):
    one = host_plan(name)

    assert contents.bundled_group(one, versions_of(one)).headers == one.headers
    bare = {p["name"]: (p["version"] or "1",) for p in contents.planned(one)}
    assert contents.bundled_group(one, bare).headers == ()


def test_modules_of_the_distribution_are_bundled_for_the_kernels_of_the_lock_alone():
    """The metapackage of a flavor follows later kernels, and the bundle has none."""
    spec = {"source": "ubuntu", "driver": "580.95.05-0ubuntu0.22.04.2"}
    one = host_plan("lab-apt", **spec)
    modules = "linux-modules-nvidia-580-server-5.15.0-179-generic"
    made = contents.bundled_group(one, {**versions_of(one), modules: ("1",)})
    whole = msgspec.structs.replace(manifest("lab-apt"), groups={one.group: made})

    found = contents.bundled_plan(one, whole, "build/bundle")

    assert modules in contents.order(one, "lab-apt").optional
    assert made.headers == (modules,)
    assert isinstance(found, Plan), found
    assert found.kernel_modules == {**one.kernel_modules, "flavors": False}


NAMES = st.text("abcdefghij-0123456789.", min_size=1, max_size=12).filter(lambda s: not s.startswith("."))
FILES = st.dictionaries(NAMES, st.integers(0, 1 << 40).map(lambda n: BundledFile(sha256="0" * 64, bytes=n)), max_size=8)


@given(apt=FILES, dnf=FILES, other=FILES)
def test_a_host_gets_the_key_and_every_file_of_its_own_system_and_no_other(apt, dnf, other):
    made = manifest("lab-apt", "lab-dnf")
    folders = {"ubuntu-22.04-x86_64/packages": apt, "rocky-9-x86_64/wheels": dnf, "elsewhere": other}
    files = {f"{folder}/{name}": row for folder, rows in folders.items() for name, row in rows.items()}
    made = msgspec.structs.replace(made, files=files)

    assert contents.host_files(made, APT) == {
        "key.asc": "key.asc",
        **{f"packages/{name}": f"ubuntu-22.04-x86_64/packages/{name}" for name in apt},
    }
    assert contents.host_files(made, DNF) == {
        "key.asc": "key.asc",
        **{f"wheels/{name}": f"rocky-9-x86_64/wheels/{name}" for name in dnf},
    }


@given(files=FILES)
def test_a_manifest_survives_being_written_and_read(files):
    made = manifest("lab-apt", files=files)

    assert read_manifest(write_manifest(made), "bundle.json") == made


@pytest.mark.parametrize("content", [b"", b"[]", b'{"schema": "gpucheck.bundle/9"}', b"\xff\xfe"])
def test_what_is_no_manifest_is_one_message(content):
    with pytest.raises(BundleError, match=r"bundle\.json: this is not a manifest of a bundle"):
        read_manifest(content, "bundle.json")
