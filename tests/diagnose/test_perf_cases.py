"""Every real machine comes out as its owner concluded, and never as the tempting wrong answer."""

import json

import pytest

from gpucheck.diagnose import diagnose, read
from gpucheck.model import Verdict, worst
from tests.diagnose.perf_cases import CASES, observations

# Case -> verdict of the whole, causes that must be named, causes that must not, words that must be said.
ANSWERS = {
    "1080tix4-intel-iommu": ("fail", {"iommu-translation", "cross-socket"}, {"geforce-p2p-disabled"}, ["hangs"]),
    "3090x2-collective-corrupts": ("fail", {"false-p2p-grant"}, set(), ["a claim, not a proof"]),
    "3090x8-no-p2p-shared-uplink": (
        "pass", {"geforce-p2p-disabled", "shared-uplink"}, {"acs-redirect"}, ["share the uplink"],
    ),
    "4090x8-stock-no-p2p": (
        "pass", {"geforce-p2p-disabled"}, {"pcie-link-downgraded", "acs-redirect", "rebar-off"}, ["19.5 is usual"],
    ),
    "4090x8-patched-p2p": (
        "pass", {"cross-socket"}, {"geforce-p2p-disabled"}, ["slower than pairs on one socket", "{0, 1, 2, 3}"],
    ),
    "4gpu-pix-pxb-hang": ("fail", {"acs-redirect", "iommu-translation"}, {"cross-socket"}, ["PIX pairs that hang"]),
    "7gpu-1070-1080ti-mixed-widths": (
        "fail", {"pcie-width-reduced"}, {"cross-socket", "p2p-unsupported-pair"}, ["1/14", "1/27"],
    ),
    "a100x8-nvswitch-healthy": ("pass", set(), {"nvlink-down", "nvlink-missing"}, ["of 300 GB/s raw"]),
    "h100x4-nv6-bidir-261": ("pass", set(), {"nvlink-down", "nvlink-missing"}, ["healthy"]),
    "h100x8-nvswitch-healthy": ("pass", set(), {"nvlink-down", "nvlink-missing"}, ["of 450 GB/s raw"]),
    "leonardo-a100-nv4-72": ("pass", {"expected-limit"}, {"nvlink-down", "nvlink-missing"}, ["near normal", "0.80"]),
    "minsky-p100x4": ("pass", {"cross-socket"}, {"pcie-link-downgraded", "nvlink-down"}, ["offers no P2P across"]),
    "turin-16gpu-4switch": ("pass", {"shared-uplink"}, {"uplink-downgraded"}, ["56.3 of 63"]),
    "turin-6gpu-one-slow-card": ("pass", {"expected-limit"}, {"cross-socket"}, ["10% slower with every peer"]),
    "wrx90-2switch-healthy": ("pass", {"shared-uplink"}, {"uplink-downgraded"}, ["of 63 GB/s raw"]),
    "wrx90-2switch-uplink-gen2": (
        "fail", {"uplink-downgraded"}, {"pcie-link-downgraded"}, ["20:01.1 at 5 GT/s", "7 GB/s"],
    ),
    "wrx90-3switch-healthy": ("pass", set(), {"uplink-downgraded", "cross-socket"}, ["healthy"]),
}  # fmt: skip


def test_every_case_has_an_answer():
    assert set(ANSWERS) == set(CASES)
    assert len(CASES) >= 17


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_a_real_machine_is_diagnosed_as_its_owner_found(name):
    verdict, said, unsaid, words = ANSWERS[name]
    findings = diagnose(read(json.dumps(observations(name))))
    causes = {finding.cause for finding in findings}
    text = " ".join(f"{f.subject} {f.seen} {f.why}" for f in findings)

    assert worst(f.verdict for f in findings).value == verdict, text
    assert said <= causes, text
    assert not unsaid & causes, text
    assert all(word in text for word in words), text


@pytest.mark.parametrize("name", [name for name, answer in ANSWERS.items() if answer[0] == "pass"])
def test_a_healthy_machine_hears_no_warning(name):
    findings = diagnose(read(json.dumps(observations(name))))

    assert {finding.verdict for finding in findings} == {Verdict.PASS}
