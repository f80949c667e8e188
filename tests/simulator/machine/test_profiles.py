"""Profiles are data, read strictly: what could not be built is refused with file, key and reason."""

import dataclasses

import pynvml
import pytest
import yaml

from gpucheck import simulator
from gpucheck.host.nvml.reading import read_nvml
from gpucheck.model import NvmlReading
from gpucheck.simulator.answers import answers
from gpucheck.simulator.data import HERE, read
from gpucheck.simulator.machine import Link, build
from gpucheck.simulator.machine import profile as profiles
from gpucheck.simulator.machine.loading import check
from gpucheck.simulator.machine.profile import GpuModel, gpu_model
from tests.shared import sampled
from tests.simulator.helpers import answering, code_of

GOOD = """
summary: one P100 behind a root port
source: made up
board: {vendor: Any, product: Box}
driver: {version: 580.178.04, flavour: proprietary}
numa_nodes: ["0-7"]
roots: {"0000:00": {numa_node: 0}}
devices:
  - {bus_id: "0000:00:02.0", under: "0000:00", part: broadwell-root-port}
  - {bus_id: "0000:04:00.0", under: "0000:00:02.0", gpu: p100-pcie-16gb}
"""


@pytest.fixture
def load(tmp_path):
    """Load a profile from text."""

    def load(text):
        path = tmp_path / "box.yml"
        path.write_text(text)
        profile = read(path, profiles.Profile)
        check(profile, path)
        return profile

    return load


@pytest.mark.parametrize("name", simulator.profile_names())
def test_every_profile_loads_and_says_where_it_comes_from(name):
    profile = simulator.load(name)

    assert profile.name == name
    assert profile.summary
    assert profile.source


def test_a_good_profile_is_accepted(load):
    assert len(load(GOOD).devices) == 2


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("summary:", "sumary:", "no such key: sumary"),
        ("flavour: proprietary", "flavour: closed", "driver.flavour: Invalid"),
        ("gpu: p100-pcie-16gb", "gpu: p100-pcie-16g", "Did you mean p100-pcie-16gb?"),
        ("gpu: p100-pcie-16gb", "part: broadwell-rot-port", "Did you mean broadwell-root-port?"),
        ("gpu: p100-pcie-16gb", "gpu: p100-pcie-16gb, part: nvswitch-1", "exactly one of `part` and `gpu`"),
        ('"0000:04:00.0", under: "0000:00:02.0"', '"0000:04:00.0", under: "0000:00"', "not on root bus 0000:00"),
        ('"0000:04:00.0", under', '"0000:00:04.0", under', "must come after the bus of 0000:00:02.0"),
        ('under: "0000:00:02.0"', 'under: "0000:00:03.0"', "neither a root bus nor a device"),
        ('"0000:04:00.0"', '"0000:04:00"', "written like 0000:3b:00.0"),
        ('"0000:04:00.0"', '"0000:00:02.0"', "used twice"),
        ("part: broadwell-root-port", "part: pex8796-upstream", "a gpu cannot be under a switch-upstream"),
        ("numa_node: 0", "numa_node: 1", "numa_node 1 does not exist"),
        ('numa_nodes: ["0-7"]', "numa_nodes: []", "at least one CPU list"),
        ('"0000:00": {', '"00": {', "root bus is written like 0000:3a"),
        ("devices:", "nvlink: {pairs: [[0, 1, 1]]}\ndevices:", "needs two of GPUs 0 to 0"),
        ("devices:", 'nvlink: {switches: {"0000:05:00.0": 1}}\ndevices:', "no NVSwitch with this bus id"),
        (
            "devices:",
            "nvlink: {hidden_switch_links: 2}\ndevices:",
            "GPU 0 would need more links, Tesla P100-PCIE-16GB has 0",
        ),
        ("devices:", "devices: {", "box.yml:9: not YAML"),
        ("summary:", "cpu: xeon-e5-2690\nsummary:", "Did you mean xeon-e5-2690-v4?"),
        ("summary:", "sockets: 2\nsummary:", "1 NUMA nodes cannot be spread over 2 sockets"),
        ("version: 580.178.04", "version: ../x", "'../x' is not a driver version"),
        ("gpu: p100-pcie-16gb", "gpu: p100-pcie-16gb, memory_node: 0", "memory_node 0 is a node of CPUs"),
        (
            "devices:",
            'parts: {card: {kind: nic, ids: "8086:1", generation: 3}}\ndevices:\n'
            '  - {bus_id: "0000:00:01.0", under: "0000:00", part: card}',
            "network card without class_id",
        ),
        (
            "devices:",
            "nvlink: {boards: [{gpus: [1], switches: {}}]}\ndevices:",
            "there is no GPU 1; there are GPUs 0 to 0",
        ),
    ],
)
def test_what_could_not_be_built_is_refused(load, old, new, reason):
    """One line that names the file and what is wrong in it."""
    assert old in GOOD
    with pytest.raises(ValueError, match=r"^box\.yml:(\d+:)? ") as caught:
        load(GOOD.replace(old, new, 1))

    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_bridges_cannot_share_a_bus(load):
    second = '  - {bus_id: "0000:00:03.0", under: "0000:00", part: broadwell-root-port}\n'
    third = '  - {bus_id: "0000:04:01.0", under: "0000:00:03.0", gpu: p100-pcie-16gb}\n'
    with pytest.raises(ValueError, match=r"bus 0000:04 is under 0000:00:02\.0 and under 0000:00:03\.0"):
        load(GOOD + second + third)


def test_unquoted_bus_id_of_digits_is_refused(load):
    """YAML reads 0000:04:00.0 as a number in base 60."""
    assert yaml.safe_load("0000:04:00.0") == 240.0
    with pytest.raises(ValueError, match="Expected `str`, got `float`"):
        load(GOOD.replace('"0000:04:00.0"', "0000:04:00.0"))


def test_unknown_profile_is_told_its_neighbour():
    with pytest.raises(LookupError, match=r"unknown profile 'hgx-h100'\. Did you mean hgx-h100-x8\?"):
        simulator.load("hgx-h100")


@pytest.mark.parametrize("name", sorted(path.stem for path in (HERE / "gpus").glob("*.yml")))
def test_every_gpu_model_says_where_it_comes_from_and_what_is_unsourced(name):
    """A number without a source is marked as such, by its field's name."""
    model = gpu_model(name)

    assert model.source
    assert set(model.unsourced) <= set(GpuModel.__struct_fields__)
    assert model.power_range_w[0] <= model.power_limit_w <= model.power_range_w[1]
    assert not (model.row_remap and model.retired_pages)


MODELS = sorted(path.stem for path in (HERE / "gpus").glob("*.yml"))
NOT_SUPPORTED = 3
TURING, AMPERE, ADA, HOPPER = 6, 7, 8, 9
GEFORCE = 5


@pytest.fixture(params=sampled(MODELS, lambda number, _: number % 4 == 0))
def gpu(request, activate, nvml_on, tmp_path):
    """(model, handle): two GPUs of the model in the box of two P100, cabled where it has NVLink."""
    made = activate("p100-pcie-x2")
    profile = simulator.load("p100-pcie-x2")
    machine, model = build(profile, profile.driver.state()), gpu_model(request.param)
    ports = model.nvlink.links if model.nvlink else 0
    for index, one in enumerate(machine.gpus):
        other = machine.gpus[1 - index].function.bus_id
        links = [Link(True, 0, other, (1 - index, port)) for port in range(ports)]
        function = dataclasses.replace(one.function, ids=f"10de:{model.device_id}")
        machine.gpus[index] = dataclasses.replace(one, model=model, links=links, function=function)
    return model, nvml_on(answering(tmp_path, made, answers(machine)))[0]


def supported(call, *arguments):
    """Whether the call succeeds. Any code but NOT_SUPPORTED is an error of the simulator."""
    code = code_of(getattr(pynvml, call), *arguments)
    assert code in (0, NOT_SUPPORTED)
    return code == 0


def test_what_the_architecture_has_is_supported_and_nothing_else(gpu):
    model, handle = gpu
    counts_errors = model.ecc and model.ecc_enabled

    assert supported("nvmlDeviceGetNvLinkState", handle, 0) == (model.nvlink is not None)
    assert supported("nvmlDeviceGetEccMode", handle) == model.ecc
    assert supported("nvmlDeviceGetTotalEccErrors", handle, 1, 1) == counts_errors
    sram = pynvml.NVML_MEMORY_LOCATION_SRAM
    assert supported("nvmlDeviceGetMemoryErrorCounter", handle, 1, 1, sram) == (
        counts_errors and model.architecture >= TURING
    )
    assert supported("nvmlDeviceGetRemappedRows", handle) == model.row_remap
    assert supported("nvmlDeviceGetRetiredPagesPendingStatus", handle) == model.retired_pages
    assert supported("nvmlDeviceGetMigMode", handle) == model.mig
    assert supported("nvmlDeviceGetFanSpeed", handle) == model.fan
    assert supported("nvmlDeviceGetSerial", handle) == (model.brand != GEFORCE)
    assert supported("nvmlDeviceGetMarginTemperature", handle) == (model.architecture >= ADA)
    assert supported("nvmlDeviceGetRepairStatus", handle) == (model.architecture >= HOPPER)


def test_error_counters_of_nvlink_5_are_fields_and_of_older_ones_calls(gpu):
    model, handle = gpu
    if model.nvlink is None:
        pytest.skip("no NVLink")
    fields = pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS
    old, new = (
        value.nvmlReturn == 0 for value in pynvml.nvmlDeviceGetFieldValues(handle, [(field, 0) for field in fields])
    )

    assert (old, new) == (model.nvlink.version < 7, model.nvlink.version >= 7)
    assert supported("nvmlDeviceGetNvLinkErrorCounter", handle, 0, 2) == old


def test_limits_are_those_of_the_model(gpu):
    model, handle = gpu
    thresholds = {
        "shutdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
        "slowdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        "memory": pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
        "operating": pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
    }
    for name, which in thresholds.items():
        limit = getattr(model.thermal, name)
        if limit is None:
            assert not supported("nvmlDeviceGetTemperatureThreshold", handle, which)
        else:
            assert pynvml.nvmlDeviceGetTemperatureThreshold(handle, which) == limit
    watts = [value // 1000 for value in pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)]
    assert tuple(watts) == model.power_range_w
    assert pynvml.nvmlDeviceGetName(handle) == model.name
    assert pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId == int(model.device_id, 16) << 16 | 0x10DE
    assert pynvml.nvmlDeviceGetArchitecture(handle) == model.architecture
    assert pynvml.nvmlDeviceGetBrand(handle) == model.brand
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == model.memory_mib << 20


def test_everything_that_gpucheck_asks_is_answered_or_not_supported(gpu):
    """No odd refusal: neither UNKNOWN nor INVALID_ARGUMENT nor a function that a library so old should have."""
    reading = read_nvml(lambda call, subject: None)

    assert isinstance(reading, NvmlReading)
    assert len(reading.gpus) == 2
    assert {(gap.call, gap.code) for gap in reading.gaps if gap.code != NOT_SUPPORTED} <= {
        ("nvmlSystemGetProcessName", pynvml.NVML_ERROR_NOT_FOUND),
        # Of driver 590 and newer.
        ("nvmlDeviceGetUnrepairableMemoryFlag_v1", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
    }
