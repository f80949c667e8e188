"""Causes: the keys are an outside contract, and every one can be acted upon."""

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


def test_every_cause_has_meaning_confirm_remedy_and_source():
    for key, cause in causes().items():
        for text in (cause.meaning, cause.confirm, cause.remedy, cause.source):
            assert text, key
            assert "\n" not in text, key
