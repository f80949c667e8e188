"""Causes: the keys are an outside contract, and every one can be acted upon."""

from itertools import zip_longest
from string import Formatter

import pytest

from gpucheck.knowledge import causes

CONTRACT = """
acs-redirect iommu-translation pcie-link-downgraded pcie-width-reduced uplink-downgraded gpu-behind-chipset
shared-uplink cross-socket geforce-p2p-disabled p2p-unsupported-pair vm-no-p2p false-p2p-grant rebar-off
nvlink-missing nvlink-down fabric-manager-down fabric-version-mismatch driver-mismatch driver-not-loaded
nouveau-loaded module-flavour-wrong leftover-environment wrong-numa-placement data-corruption gpu-lost
ecc-uncorrected row-remap throttled mig-enabled compute-mode-exclusive shm-too-small library-mismatch
arch-not-in-build wedged-driver driver-bug switch-write-collapse nccl-policy narrow-by-design expected-limit
"""


def test_no_key_of_the_contract_is_missing():
    assert set(CONTRACT.split()) <= set(causes())


@pytest.mark.parametrize("key", causes())
def test_a_cause_can_be_understood_and_acted_upon(key):
    """Its steps name no value, as a cause has none; an introduction is followed by its command, which stands alone."""
    cause = causes()[key]

    for text in (cause.meaning, cause.confirm, cause.source, *(step.text for step in cause.steps)):
        assert text
        assert "\n" not in text
    assert cause.steps or key == "expected-limit"
    for step, following in zip_longest(cause.advice, cause.advice[1:]):
        text = step.text or step.command or ""
        assert not text.endswith((";", ".", ","))
        assert [name for _, name, _, _ in Formatter().parse(text) if name is not None] == []
        if step.text is not None and text.endswith(":"):
            assert following is not None
            assert following.command is not None
