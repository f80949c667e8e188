"""Options of the nvidia module: what the loaded module runs with is compared, not only the file."""

import pytest

from tests.playbooks.modules import shared

options = shared("running")
LINE = (
    'options nvidia NVreg_CoherentGPUMemoryMode=driver NVreg_RegistryDwords="PeerMappingOverride=1" '
    "NVreg_UsePageAttributeTable=0x1\n"
)
IN_FORCE = """ResmanDebugLevel: 4294967295
RestrictProfilingToAdminUsers: 1
UsePageAttributeTable: 1
CoherentGPUMemoryMode: "driver"
RegistryDwords: "PeerMappingOverride=1"
"""


def plan(line: str) -> dict[str, list[dict[str, str]]]:
    other = {"path": "/etc/modprobe.d/gpucheck-nouveau.conf", "content": "blacklist nouveau\n"}
    return {"files": [other, {"path": options.OPTIONS_FILE, "content": line}]}


@pytest.fixture
def params(tmp_path):
    path = tmp_path / "params"
    path.write_text(IN_FORCE)
    return str(path)


def test_options_in_force_are_no_difference_however_they_are_written(params):
    assert options.not_in_force(plan(LINE), params) == []


def test_an_option_that_waits_for_a_reboot_is_said_with_both_values(params):
    wanted = plan("options nvidia NVreg_RestrictProfilingToAdminUsers=0\n")

    assert options.not_in_force(wanted, params) == [
        "the module option NVreg_RestrictProfilingToAdminUsers is 1, planned 0"
    ]


def test_an_option_that_this_driver_does_not_have_is_named(params):
    wanted = plan("options nvidia NVreg_Unheard=0\n")

    assert options.not_in_force(wanted, params) == ["the loaded module has no option NVreg_Unheard"]


def test_without_options_or_without_a_loaded_module_nothing_is_said(params, tmp_path):
    assert options.not_in_force({"files": []}, params) == []
    assert options.not_in_force(plan(LINE), str(tmp_path / "none")) == []
