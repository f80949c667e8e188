"""Where the wheel of torch can be had: PyPI before PyTorch's own index, unless the site says otherwise."""

import msgspec
import pytest

from gpucheck.stack import StackSet, StackSpec
from gpucheck.stack.lock import lock
from tests.stack.asked import answer, refusal
from tests.stack.hosts import host


def torch(gpus, *want, os="ubuntu-22.04"):
    """Build and origin of the chosen torch."""
    found = answer(gpus, os, *want).torch
    return f"{found.version}+{found.build}", found.origin


@pytest.mark.parametrize(
    ("gpus", "want", "expected"),
    [
        (["P100 PCIe"] * 2, (), ("2.7.1+cu126", "pypi")),
        (["V100 SXM2"] * 8, (), ("2.10.0+cu128", "pypi")),
        (["P100 PCIe", "V100 PCIe"], (), ("2.7.1+cu126", "pypi")),
        (["V100 PCIe", "A100 PCIe 80GB"], (), ("2.10.0+cu128", "pypi")),
        (["T4"], (), ("2.15.0+cu132", "pypi")),
        # A driver of 2024: the last on PyPI with CUDA 12.
        (["A100 PCIe 80GB"], ("driver=550",), ("2.10.0+cu128", "pypi")),
        (["H100 SXM"], ("driver=570",), ("2.10.0+cu128", "pypi")),
        (["P100 PCIe"], ("torch_origin=any",), ("2.14.1+cu126", "index")),
        (["V100 SXM2"], ("torch_origin=any",), ("2.14.1+cu126", "index")),
        (["P100 PCIe"], ("torch_origin=pypi",), ("2.7.1+cu126", "pypi")),
        (["P100 PCIe"], ("torch=2.14",), ("2.14.1+cu126", "index")),
        (["P100 PCIe"], ("torch=2.14.1+cu126",), ("2.14.1+cu126", "index")),
        (["P100 PCIe"], ("torch>=2.5",), ("2.7.1+cu126", "pypi")),
        (["P100 PCIe"], ("torch>=2.8",), ("2.14.1+cu126", "index")),
    ],
)
def test_the_build_is_the_newest_of_the_origin_that_comes_first(gpus, want, expected):
    assert torch(gpus, *want) == expected


def test_a_newer_build_elsewhere_is_named_with_the_key_that_takes_it():
    reasons = [r.because for r in answer(["P100 PCIe"], "ubuntu-22.04").reasons if r.component == "torch"]
    newest = [r.because for r in answer(["T4"], "ubuntu-22.04").reasons if r.component == "torch"]

    assert any("2.14.1+cu126 is newer" in text and "torch_origin: any" in text for text in reasons)
    assert any("torch.compile rejects GPUs below 7.0" in text for text in reasons)
    assert not any("torch_origin" in text for text in newest)


@pytest.mark.parametrize("want", ["torch=2.14", "torch=2.14.1+cu126", "torch>=2.8"])
def test_a_build_that_pypi_lacks_is_refused_where_nothing_else_is_allowed(want):
    """By the rule of the origin, whatever else is against other builds; the nearest change is one that PyPI has."""
    conflict = refusal(["P100 PCIe"], "ubuntu-22.04", want, "torch_origin=pypi")

    assert conflict.rule == "R25"
    assert [fact.fact for fact in conflict.between] == [
        "torch 2.14.1+cu126 is only in PyTorch's wheel index",
        "torch_origin is pypi",
    ]
    assert conflict.change == {"torch": "2.7.1+cu126"}
    assert isinstance(answer(["P100 PCIe"], "ubuntu-22.04", "torch=2.7.1+cu126", "torch_origin=pypi"), StackSet)


@pytest.mark.parametrize("origin", ["auto", "pypi", "any"])
def test_the_hosts_own_libraries_do_not_depend_on_where_the_wheel_is(origin):
    """They are for people who compile; the wheel brings its own."""
    found = answer(["P100 PCIe"], "ubuntu-22.04", f"torch_origin={origin}")

    assert (found.cudnn, found.nccl) == ("9.10.2.21", "2.29.3+cuda12.9")


def test_stating_what_would_be_taken_anyway_changes_nothing():
    free, stated = (answer(["P100 PCIe"], "ubuntu-22.04", *want) for want in ((), ("torch=2.7.1",)))

    assert (stated.torch, stated.cudnn, stated.nccl) == (free.torch, free.cudnn, free.nccl)


def test_an_older_torch_brings_the_next_newer_system_nccl():
    """torch 2.6 has NCCL 2.21.5, for which no system build is known."""
    found = answer(["P100 PCIe"], "ubuntu-22.04", "torch=2.6")

    assert found.nccl == "2.27.5+cuda12.9"
    assert any(r.component == "nccl" and "next newer system build" in r.because for r in found.reasons)


def test_a_lock_from_before_keeps_its_torch():
    """Until the specification changes: hosts are not moved by a new preference."""
    facts = [host("ubuntu-22.04", "p100-pcie-x2")]
    before = lock(StackSpec(torch_origin="any"), facts)
    before = msgspec.structs.replace(before, spec=StackSpec())

    kept = lock(StackSpec(), facts, previous=before)
    moved = lock(StackSpec(torch_origin="pypi"), facts, previous=before)

    assert [g.stack.torch and g.stack.torch.version for g in kept.groups.values()] == ["2.14.1"]
    assert [g.stack.torch and g.stack.torch.version for g in moved.groups.values()] == ["2.7.1"]
