"""What a client finds in the library: what the real one of that driver branch exports, neither more nor less."""

import ctypes
import re
from pathlib import Path

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.simulator.nvml.library import OWN, all_exports, exports
from tests.shared import sampled
from tests.simulator.helpers import exported, handle, library_of

UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 1, 2, 3, 4
# Names that old headers give and that the binding never looks up.
LEGACY = {
    *("nvmlInit", "nvmlInit_v2", "nvmlEventSetWait", "nvmlComputeInstanceGetInfo", "nvmlDeviceRemoveGpu_v2"),
    *("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetAttributes"),
    *("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo"),
    *("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"),
    *("nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetGpuInstancePossiblePlacements"),
    *("nvmlDeviceGetGridLicensableFeatures", "nvmlDeviceGetGridLicensableFeatures_v2"),
    *("nvmlDeviceGetGridLicensableFeatures_v3", "nvmlVgpuInstanceGetLicenseInfo"),
    *("nvmlGetBlacklistDeviceCount", "nvmlGetBlacklistDeviceInfoByIndex"),
}
# Names that only some releases have.
GONE = {"nvmlDeviceCcuGetStreamState", "nvmlDeviceCcuSetStreamState"}
# What lies behind these is not public.
INTERNAL = {"nvmlInternalGetExportTable", "nvmlRetry_NvRmControl"}
RECORDED = sorted((Path(__file__).parents[2] / "data" / "nvml_exports").glob("*.txt"))


def looked_up_by_the_binding() -> set[str]:
    source = Path(pynvml.__file__).read_text(encoding="utf-8")
    return set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', source))


@pytest.fixture(scope="module")
def library(tmp_path_factory, cache):
    """A library with its machine."""
    with library_of(tmp_path_factory.mktemp("exports"), cache) as library:
        yield library


def test_every_function_that_the_installed_binding_knows_is_in_the_table():
    """A newer binding with more functions turns this red: add them with their branch."""
    assert looked_up_by_the_binding() | LEGACY | GONE == {one.name for one in all_exports()}


@pytest.mark.parametrize(("version", "has", "lacks"), sampled([
    ("340.108", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo_v3"),
    ("525.147.05", "nvmlDeviceCcuGetStreamState", "nvmlDeviceGetGpuFabricInfoV"),
    ("535.261.03", "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceCcuGetStreamState"),
    ("570.86.15", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetAddressingMode"),
    ("580.178.04", "nvmlDeviceGetAddressingMode", "nvmlDeviceGetUnrepairableMemoryFlag_v1"),
    ("615.36", "nvmlDeviceGetGpuFabricInfo_v4", None),
], (0, 4)))  # fmt: skip
def test_a_library_exports_what_its_branch_has(activate, tmp_path, version, has, lacks):
    found = exported(simulator.build_library(tmp_path, version))

    assert found == {one.name for one in exports(version)} | {OWN}
    assert has in found
    assert lacks not in found


def recorded(listing: Path) -> set[str]:
    lines = listing.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if not line.startswith("#")} - INTERNAL


@pytest.mark.parametrize("listing", RECORDED, ids=lambda path: path.stem)
def test_the_table_has_what_the_real_library_of_that_version_exports(listing):
    assert recorded(listing) == {one.name for one in exports(listing.stem)}


def test_the_real_libraries_are_of_nine_branches():
    branches = {path.stem.partition(".")[0] for path in RECORDED}
    assert branches == {"340", "390", "418", "450", "460", "470", "525", "535", "550"}
    assert all(len(recorded(path)) > 100 for path in RECORDED)


def test_nothing_unsimulated_answers_before_init(library):
    for one in exports("580.178.04"):
        if one.how != "answers":
            assert getattr(library, one.name)(None, None, None, None) == UNINITIALIZED, one.name


def test_the_unsimulated_refuse_by_what_they_are_asked_about(library, monkeypatch):
    """A right GPU NOT_SUPPORTED, a wrong one and what no machine here has INVALID_ARGUMENT."""
    assert library.nvmlInit_v2() == 0
    gpu = handle(library)
    right = {"device": NOT_SUPPORTED, "host": NOT_SUPPORTED, "object": INVALID_ARGUMENT}
    wrong = right | {"device": INVALID_ARGUMENT, "change": INVALID_ARGUMENT}
    for one in exports("580.178.04"):
        function = getattr(library, one.name)
        if one.how in right:
            assert function(gpu, None, None, None) == right[one.how], one.name
        elif one.how != "answers":
            assert function(gpu, None, None, None) in (NOT_SUPPORTED, NO_PERMISSION), one.name
        if one.how in wrong:
            assert function(ctypes.c_void_p(7), None, None, None) == wrong[one.how], one.name
    library.nvmlShutdown()
