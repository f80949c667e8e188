"""The libraries of network cards in a plan: the distribution's own, where no OFED brings them."""

import pytest

from gpucheck.model import DriverState
from gpucheck.stack.facts import RdmaFacts
from gpucheck.stack.plan import Plan
from gpucheck.stack.rdma import LIBRARIES_SOURCE
from gpucheck.stack.settings import Tuning
from gpucheck.stack.spec import StackSpec
from tests.stack.asked import plan_of
from tests.stack.hosts import host

CARDS = {"rdma": (RdmaFacts(bus_id="0000:06:00.0", device_id="1021", kind="infiniband"),)}
OFED = {**CARDS, "ofed": "24.10"}
APT = ["libibverbs1", "ibverbs-providers"]
UNLIMITED = StackSpec(tuning=Tuning(memlock="unlimited"))


def brought(found: Plan):
    """Names of the planned libraries, each without version and hold, and the first words of the reasons."""
    part = found.components["nccl"]
    names = [row["name"] for row in part["packages"] if row["version"] is None]
    assert not {*names} & {*part["holds"]}
    return names, [one.because for one in found.reasons if (one.component, one.source) == ("rdma", LIBRARIES_SOURCE)]


@pytest.mark.parametrize(
    ("system", "facts", "spec", "names", "reasons"),
    [
        ("debian-12", CARDS, UNLIMITED, APT, ["RDMA cards without OFED"]),
        ("rocky-9", CARDS, UNLIMITED, ["libibverbs"], ["RDMA cards without OFED"]),
        ("ubuntu-24.04", CARDS, StackSpec(nccl="none"), APT, ["RDMA cards without OFED", "RDMA registers"]),
        ("rocky-9", OFED, UNLIMITED, [], []),
        ("ubuntu-24.04", {}, StackSpec(), [], []),
    ],
)
def test_libraries_are_those_of_the_distribution_without_ofed(system, facts, spec, names, reasons):
    found, said = brought(plan_of(spec, [host(system, "h100-sxm5-x8", **facts)], host="node01"))

    assert found == names
    assert len(said) == len(reasons)
    assert all(words.startswith(start) for words, start in zip(said, reasons, strict=True))


def test_a_host_that_keeps_its_driver_gets_none():
    version, flavour = "580.95.05", "open"
    driver = DriverState(
        loaded_version=version, loaded_flavour=flavour, installed_version=version, installed_flavour=flavour
    )
    kept = host("ubuntu-24.04", "h100-sxm5-x8", driver=driver, **CARDS)

    assert brought(plan_of(StackSpec(driver="keep"), [kept], host="node01")) == ([], [])


def test_a_new_name_of_the_cards_is_stated_where_rdma_core_may_come_along():
    plans = [
        plan_of(UNLIMITED, [host(one, "h100-sxm5-x8", **CARDS)], host="node01") for one in ("rocky-9", "debian-12")
    ]

    assert ["NCCL_IB_HCA" in brought(one)[1][0] for one in plans] == [True, False]


def test_a_group_has_what_one_of_its_hosts_needs():
    """A bundle is made of groups."""
    hosts = [host("rocky-9", "h100-sxm5-x8", name, **facts) for name, facts in (("a", OFED), ("b", CARDS), ("c", {}))]

    names, (first, second) = brought(plan_of(StackSpec(), hosts, group="rocky-9-x86_64-2330x8"))

    assert names == ["libibverbs"]
    assert (first.partition(":")[0], second.partition(":")[0]) == ("1 of 3 hosts (b)", "2 of 3 hosts (a, b)")
    assert [brought(plan_of(StackSpec(), hosts, host=name))[0] for name in "abc"] == [[], ["libibverbs"], []]


@pytest.mark.parametrize(
    ("built", "flavour", "peermem", "words"),
    [
        (True, "open", True, "is loaded at boot"),
        (False, "open", False, "by DMA-BUF of the open kernel modules. Build it"),
        (False, "proprietary", False, "copied through host memory"),
    ],
)
def test_an_ofed_that_was_not_built_for_the_kernel_is_stated_before_anything_is_installed(
    built, flavour, peermem, words
):
    cards = {**OFED, "ofed_built": built}
    found = plan_of(
        StackSpec(kernel_module=flavour, tuning=UNLIMITED.tuning),
        [host("rocky-9", "h100-sxm5-x8", **cards)],
        host="node01",
    )
    said = [one.because for one in found.reasons if one.component == "rdma"]

    assert any("nvidia-peermem" in row["path"] for row in found.files) is peermem
    assert [words in one for one in said] == [True]
    assert ("not built for kernel" in said[0]) is not built
    assert brought(found)[0] == []
