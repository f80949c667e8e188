import re

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from gpucheck.cli import explain
from gpucheck.model import Health, NvmlFailure, NvmlGap, PciDevice, PcieLink, Simulation, Verdict
from gpucheck.run import verification as run
from gpucheck.run.topology import examine
from gpucheck.topology import of
from tests.fakes import SYSTEM, facts
from tests.machines import LOADED, on_bus, p100, reading, whole_host
from tests.render.views import report_text

HOST = replace(
    whole_host(p100(0), p100(1)),
    simulation=Simulation(profile="p100-pcie-x2", stand_ins=("Debian 12 presenting itself as Ubuntu 22.04",)),
)


def quick(host, **options):
    return run.verify(host, run.select(run.all_steps(), level="quick", only=(), skip=()), **options)


def test_findings_know_the_index_and_uuid_of_their_gpus():
    """NVML's index, which has a gap where a GPU was lost: never the position in a list."""
    narrow = msgspec.structs.replace(p100(1), pcie=msgspec.structs.replace(p100(1).pcie, width=8))
    report = quick(facts(nvml=reading(narrow), pci=on_bus(p100(0), narrow), driver=LOADED))
    found = {f.check: (f.subject, f.gpu_index, f.gpu_uuid) for f in report.findings if f.verdict is Verdict.FAIL}

    assert found["pcie-link"] == (f"gpu:{narrow.pci_bus_id}", narrow.index, narrow.uuid)
    assert found["inventory"] == (f"gpu:{p100(0).pci_bus_id}", None, None)
    assert f"GPU {narrow.index} ({narrow.pci_bus_id}): 8 lanes, expected 16" in report_text(report)


@pytest.mark.parametrize(
    ("level", "only", "skip", "expected", "absent"),
    [
        ("quick", (), (), "driver", "smoke-ddp"),
        ("standard", (), (), "smoke-ddp", "smoke-fsdp"),
        ("standard", (), (), "smoke-transfer", "smoke-dp"),
        ("standard", (), (), "smoke-versions", "smoke-model-parallel"),
        ("full", (), (), "smoke-fsdp", "nothing"),
        ("standard", ("smoke-fsdp",), (), "smoke-fsdp", "driver"),
        ("standard", ("nvlink",), (), "fabric", "driver"),
        ("standard", ("smoke-ddp",), (), "smoke-ddp", "driver"),
        ("standard", (), ("training",), "driver", "smoke-ddp"),
        ("standard", ("hardware",), ("fabric",), "nvlink", "fabric"),
    ],
)
def test_only_and_skip_select_by_name_and_tag(level, only, skip, expected, absent):
    names = [step.name for step in run.select(run.all_steps(), level=level, only=only, skip=skip)]

    assert expected in names
    assert absent not in names


def test_a_host_without_gpus_is_not_measured_and_says_why():
    report = run.verify(facts(), run.select(run.all_steps(), level="standard", only=("p2p",), skip=("quick",)))

    assert [(finding.verdict, finding.check) for finding in report.findings] == [(Verdict.UNKNOWN, "p2p-copies")]
    assert "no GPU to measure" in str(report.findings[0].seen)


def test_the_list_names_every_step_with_level_tags_and_question():
    shown = CliRunner().invoke(explain.COMMAND, []).output
    lines = [re.split("  +", line) for line in shown.splitlines()]
    found = {line[0]: line[1:] for line in lines[1:]}

    assert set(found) == {step.name for step in run.all_steps()}
    assert found["driver"][:2] == ["quick", "software"]
    assert found["p2p"] == ["standard", "measure", "does every GPU pair copy right, and as fast as its path allows?"]
    assert all(0 < step.typical_s < step.seconds for step in run.all_steps())
    assert found["smoke-fsdp"][0] == "full"


def test_gpu_without_any_counter_is_not_recorded_as_counted():
    """A later report would compare nothing with nothing."""
    silent = msgspec.structs.replace(p100(1), health=Health())
    gap = NvmlGap(call="nvmlDeviceGetTotalEccErrors", subject=f"gpu:{silent.pci_bus_id}", code=999, name="Unknown")
    read = msgspec.structs.replace(reading(p100(0), silent), gaps=(gap,))
    report = run.verify(
        replace(HOST, nvml=read), run.select(run.all_steps(), level="quick", only=("gpu-health",), skip=())
    )

    (finding,) = report.findings
    assert (finding.verdict, finding.values) == (Verdict.UNKNOWN, {"gpus": 1, "of_gpus": 2})
    assert finding.evidence == (f"nvmlDeviceGetTotalEccErrors gpu:{silent.pci_bus_id}: 999 Unknown",)


P100S = (p100(0), p100(1))
NOT_LOADED = NvmlFailure(call="nvmlInit_v2", code=9, name="NVML_ERROR_DRIVER_NOT_LOADED")
INTEL = {"/proc/cpuinfo": "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 79\n"}
NARROW = PcieLink(generation=3, width=8, max_generation=3, max_width=16)
NIC = PciDevice(
    bus_id="0000:0a:00.0", vendor_id="15b3", device_id="1017", class_id="020700", infiniband_names=("mlx5_0",)
)


@pytest.mark.parametrize(("virtual", "found"), [(None, [("pcie-link", Verdict.FAIL)] * 2), ("kvm", [])])
def test_links_of_a_host_are_reported_as_their_checks_report_them(virtual, found):
    system = msgspec.structs.replace(SYSTEM, virtual=virtual)
    gpus = [msgspec.structs.replace(gpu, pcie=NARROW) for gpu in P100S]
    host = facts(system=system, nvml=reading(*gpus, ancestor="PHB"), pci=on_bus(*gpus), files=INTEL)

    topology = examine(host)

    assert "x 0.68 (PHB)" in topology.pairs[0].expected.basis
    assert [(f.check, f.verdict) for f in topology.findings if f.check != "topology"] == found
    assert of(host).pairs == topology.pairs


def test_host_without_nvml_has_no_topology():
    host = facts(nvml=NOT_LOADED, pci=on_bus(*P100S))

    assert of(host) is None
    found = examine(host)
    assert (found.gpus, found.matrix) == ((), ())
    assert [(f.check, f.cause) for f in found.findings] == [("driver", "driver-not-loaded")]


def test_host_without_gpus_lists_no_network_cards():
    found = examine(facts(nvml=reading(), pci=(NIC,)))

    assert (found.gpus, found.nics, found.wiring) == ((), (), None)
    assert [f.check for f in found.findings] == ["inventory"]
