"""Causes: the keys are an outside contract, and every one can be acted upon."""

import re
from itertools import zip_longest
from pathlib import Path
from string import Formatter

import pytest

from gpucheck.checks.gpu.memory_errors import RECOVERY
from gpucheck.knowledge import causes, xid
from gpucheck.knowledge._load import table
from gpucheck.knowledge.causes import ACTIONS, _Actions, actions, of_recovery_action
from gpucheck.knowledge.codes import codes, groups
from gpucheck.knowledge.messages import rows, titles

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
    """Its steps name no value, as a cause has none; an introduction is followed by its command, which stands alone.

    A cause of a job is the user's, and hardware is not.
    """
    cause = causes()[key]

    for text in (cause.meaning, cause.confirm, cause.source, *(step.text for step in cause.steps)):
        assert text
        assert "\n" not in text
    assert cause.steps or key == "expected-limit"
    assert cause.domain != "job" or cause.owner == "user"
    assert cause.action not in ("reset-gpu", "reboot", "power-cycle", "replace") or cause.owner != "user"
    for step, following in zip_longest(cause.advice, cause.advice[1:]):
        text = step.text or step.command or ""
        assert not text.endswith((";", ".", ","))
        assert [name for _, name, _, _ in Formatter().parse(text) if name is not None] == []
        if step.text is not None and text.endswith(":"):
            assert following is not None
            assert following.command is not None


PAGE = Path(__file__).parents[2] / "docs" / "integrations" / "actions.md"
NVSENTINEL = {"NONE", "COMPONENT_RESET", "CONTACT_SUPPORT", "RUN_FIELDDIAG", "RESTART_VM", "RESTART_BM", "REPLACE_VM"}
GPUD = {"IGNORE_NO_ACTION_REQUIRED", "REBOOT_SYSTEM", "HARDWARE_INSPECTION", "CHECK_USER_APP_AND_GPU"}
STEPS = {"none", "reset the GPU", "restart the node", "open a service request"}


def test_every_action_has_values_that_other_systems_know():
    assert set(actions()) == set(ACTIONS)
    for meaning in actions().values():
        assert {meaning.nvsentinel, meaning.nvsentinel_vm} <= NVSENTINEL
        assert meaning.gpud in GPUD
        assert meaning.health_validation in STEPS
        assert meaning.nvml is None or meaning.nvml in ("none", *RECOVERY)


def test_harmless_action_drains_no_node():
    for name in ("none", "wait"):
        assert actions()[name].slurm == "nothing"
    assert all(actions()[name].slurm != "nothing" for name in ACTIONS[2:])


def test_what_comes_before_the_steps_of_a_cause_repeats_none_of_them():
    of_lines = ((row.key, row.cause, row.steps) for name in titles() for row in rows(name))
    of_codes = (
        (key, row.cause, row.steps) for group in groups() for key, row in codes(group).items() if row.then_cause
    )

    assert not [
        (key, step)
        for key, cause, steps in (*of_lines, *of_codes)
        for step in steps
        if cause and (step.do or step.change) and step in causes()[cause].steps
    ]


def test_every_recovery_action_of_nvml_has_an_action():
    """One that is newer than the table needs a person."""
    assert {"none", *RECOVERY} <= table("actions.yml", _Actions).recovery_actions.keys()
    assert [name for name in ("none", *RECOVERY) if of_recovery_action(name) == "none"] == ["none"]
    assert of_recovery_action("unknown-9") == "contact-support"


def test_every_row_of_the_xid_catalogue_that_asks_for_something_has_an_action_and_an_owner():
    rules, actions = table("nvlink5.yml", xid._Nvlink5).rules, table("xid.yml", xid._Xids).recovery_actions
    for row in (*xid.xids().values(), *xid.sxids().values(), *rules, *actions):
        asks = bool(row.steps) and row.verdict != "note"
        assert (row.action is not None, row.owner is not None) == (asks, asks), row
    for one in xid.xids().values():
        assert one.steps or one.verdict == "note", one
        assert one.cause is None or one.cause in causes(), one


def test_the_page_has_every_action_with_its_translations():
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.M)
    found = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    for name, meaning in actions().items():
        vm = meaning.nvsentinel_vm
        nvsentinel = meaning.nvsentinel if vm == meaning.nvsentinel else f"{meaning.nvsentinel}, in a VM {vm}"
        assert found[name] == [
            meaning.means,
            nvsentinel,
            meaning.gpud,
            meaning.health_validation,
            meaning.nvml or "-",
            meaning.slurm,
        ]
