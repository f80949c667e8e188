"""The simulator's GPU models against what real ones of the same name reported."""

import pytest

from gpucheck.simulator.data import HERE
from gpucheck.simulator.machine.profile import gpu_model
from tests.captures import NAMES, gpus

MODELS = {gpu_model(path.stem).name: gpu_model(path.stem) for path in sorted((HERE / "gpus").glob("*.yml"))}


def number(gpu, path):
    return round(float(gpu.findtext(path).split()[0]))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_as_the_real_gpu_reports_itself(name):
    for gpu in gpus(name):
        model = MODELS[gpu.findtext("product_name")]
        assert model.device_id == gpu.findtext("pci/pci_device_id")[:4].lower()
        assert model.subsystem_id == gpu.findtext("pci/pci_sub_system_id")[:4].lower()
        assert (
            model.class_id
            == f"{int(gpu.findtext('pci/pci_base_class')):02x}{int(gpu.findtext('pci/pci_sub_class')):02x}00"
        )
        assert model.memory_mib == number(gpu, "fb_memory_usage/total")
        assert model.bar1_mib == number(gpu, "bar1_memory_usage/total")
        assert model.generation == number(gpu, "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen")
        assert model.power_limit_w == number(gpu, "gpu_power_readings/default_power_limit")
        limits = [number(gpu, f"gpu_power_readings/{end}_power_limit") for end in ("min", "max")]
        assert list(model.power_range_w) == limits
        assert list(model.clocks_mhz) == [number(gpu, "max_clocks/sm_clock"), number(gpu, "max_clocks/mem_clock")]
        assert model.mig == (gpu.findtext("mig_mode/current_mig") != "N/A")
        assert model.coherent == (gpu.findtext("c2c_mode") == "Enabled")
        assert model.row_remap == (gpu.find("remapped_rows/remapped_row_failure") is not None)


@pytest.mark.parametrize("name", NAMES)
def test_temperature_limits_are_those_of_the_real_gpu(name):
    """Newer drivers report margins (T.Limit) to the operating limit; sensors and limit agree within 1 degree."""
    for gpu in gpus(name):
        model = MODELS[gpu.findtext("product_name")].thermal
        if gpu.find("temperature/gpu_temp_max_threshold") is not None:
            shutdown, slowdown, operating = (
                number(gpu, f"temperature/gpu_temp_{which}_threshold") for which in ("max", "slow", "max_gpu")
            )
        else:
            operating = number(gpu, "temperature/gpu_temp") + number(gpu, "temperature/gpu_temp_tlimit")
            shutdown = operating - number(gpu, "temperature/gpu_temp_max_tlimit_threshold")
            slowdown = operating - number(gpu, "temperature/gpu_temp_slow_tlimit_threshold")
        assert abs(model.operating - operating) <= 1
        assert abs(model.slowdown - slowdown) <= 1
        assert abs(model.shutdown - shutdown) <= 1
