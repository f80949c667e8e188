"""The kernel module flavor that each GPU generation needs."""

import msgspec
import pytest

from gpucheck.checks.software import module_flavour
from gpucheck.model import DriverState
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN
from tests.fakes import facts
from tests.machines import LOADED, on_bus, p100


@pytest.mark.parametrize(
    ("driver", "verdict"),
    [
        (DriverState(loaded_version="550.163.01"), UNKNOWN),
        (DriverState(loaded_version="550.163.01", installed_version="580.95", installed_flavour="open"), UNKNOWN),
        (DriverState(loaded_version="580.95", installed_version="580.95", installed_flavour="proprietary"), PASS),
        (DriverState(installed_version="580.95", installed_flavour="proprietary"), PASS),
        (DriverState(), SKIP),
    ],
)
def test_the_flavour_of_another_file_is_not_that_of_the_loaded_module(driver, verdict):
    """A loaded module of unknown flavor is no module that is not loaded."""
    (finding,) = module_flavour.evaluate(facts(pci=on_bus(p100(0)), driver=driver))

    assert finding.verdict is verdict


@pytest.mark.parametrize(
    ("device", "flavour", "verdict"),
    [("15f8", "proprietary", PASS), ("15f8", "open", FAIL), ("2901", "proprietary", FAIL), ("2330", "open", PASS)],
)
def test_the_flavour_must_serve_the_generation(device, flavour, verdict):
    """Pascal needs the proprietary modules, Blackwell the open ones."""
    gpus = tuple(msgspec.structs.replace(d, device_id=device) for d in on_bus(p100(0)))
    driver = msgspec.structs.replace(LOADED, loaded_flavour=flavour)

    (finding,) = module_flavour.evaluate(facts(pci=gpus, driver=driver))

    assert (finding.verdict, finding.cause) == (verdict, "module-flavour-wrong" if verdict is FAIL else None)
