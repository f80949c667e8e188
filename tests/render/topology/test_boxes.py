"""The drawing shows everything once, in the box that it is in, and states how the NVLinks go."""

import msgspec
import pytest
from lxml import html

from gpucheck import imports
from gpucheck.model import Verdict
from gpucheck.model.host.network import RdmaPort
from gpucheck.render.topology import nvlinks
from gpucheck.topology import infer_wiring
from tests.imports import nccl
from tests.imports.corpus import CASES, raw
from tests.machines import GEN5_X16
from tests.render.reports import finding
from tests.render.views import topology_page
from tests.shared import sampled
from tests.topology.servers import narrowed, topology

MACHINES = {
    "2": topology(2),
    "8": topology(8),
    "72": topology(72, 4, switch_links=18),
    "mesh": imports.read(nccl.mesh()),
    "switches": imports.read(nccl.hgx()),
}
READABLE = [case for case in CASES if not case.get("negative")]


def drawn(made):
    (drawing,) = html.fromstring(topology_page(made)).xpath("//*[@class='drawing']")
    return drawing


def boxes(drawing, kind):
    return drawing.xpath(f".//*[contains(@class, 'box {kind} ')]")


def lines(drawing, kind):
    return [line.text_content().strip() for box in boxes(drawing, kind) for line in box.xpath("b | div[not(b or div)]")]


@pytest.mark.parametrize("made", MACHINES.values(), ids=MACHINES)
def test_every_gpu_and_card_has_one_box_in_a_node(made):
    drawing = drawn(made)

    assert len(boxes(drawing, "gpu")) == len(made.gpus)
    assert len(boxes(drawing, "nic")) == len(made.nics)
    assert all(box.xpath("ancestor::*[contains(@class, 'box node ')]") for box in boxes(drawing, "gpu"))


@pytest.mark.parametrize("case", sampled(READABLE, lambda number, _: number % 4 == 0), ids=lambda case: case["id"])
def test_every_real_paste_can_be_drawn(case):
    made = infer_wiring(imports.read(raw(case)))
    drawing = drawn(made)

    assert len(boxes(drawing, "gpu")) + len(boxes(drawing, "nic")) == len(made.gpus) + len(made.nics)


def test_nvlinks_are_told_by_their_number():
    mesh, switches = (list(nvlinks(made, made.wiring)) for made in (MACHINES["mesh"], MACHINES["switches"]))

    assert mesh[0].startswith("NV2: 2 links each between 0-3")
    assert mesh[1].startswith("NV1: 1 link each between ")
    assert switches == ["18 NVLinks from GPU 0-7 to 4 NVSwitches: NV18 between any two"]
    assert "18 NVLinks from GPU 0-7 to 4 NVSwitches" in topology_page(MACHINES["switches"])


def test_no_nvlink_is_said_only_where_the_source_would_show_it():
    made, words = MACHINES["8"], ["No NVLink between these GPUs."]
    unknown = msgspec.structs.replace(made.wiring, nvlinks_known=False)

    assert list(nvlinks(made, made.wiring)) == words
    assert list(nvlinks(made, unknown)) == []


def test_a_reduced_link_is_marked_in_box_and_words():
    drawing = drawn(topology(8, uplink={1: narrowed(GEN5_X16, width=8)}))

    (reduced,) = drawing.xpath(".//*[contains(@class, 'box ') and contains(@class, ' off')]")
    assert "Gen5 x8 of x16" in [line.text_content().strip(" \u00d7") for line in reduced.xpath("div")]


def test_simulated_is_said_with_the_profile():
    made = msgspec.structs.replace(MACHINES["2"], simulated=True)

    assert "SIMULATED p100-pcie-x2" in html.fromstring(topology_page(made, "p100-pcie-x2")).text_content()
    assert "SIMULATED" not in topology_page(MACHINES["2"])


def test_faulty_gpus_are_marked_in_their_boxes():
    machine = MACHINES["switches"]
    first, second = (gpu.pci_bus_id for gpu in machine.gpus[:2])
    hot = finding("throttle", f"gpu:{first}", Verdict.WARN, cause="throttled", gpu_index=0)
    down = finding(subject=f"gpu:{second}", gpu_index=1)
    drawing = drawn(msgspec.structs.replace(machine, findings=(hot, down)))

    assert [box.xpath("b")[0].text for box in drawing.xpath(".//*[contains(@class, 'gpu warn')]")] == ["GPU0"]
    assert [box.xpath("b")[0].text for box in drawing.xpath(".//*[contains(@class, 'gpu fail')]")] == ["GPU1"]
    assert {"! WARN throttled", "\u00d7 FAIL nvlink-down"} <= {*lines(drawing, "gpu")}


def test_a_card_has_its_use_and_the_rate_or_state_of_each_port():
    ports = RdmaPort(number=1, state="active", rate_gbit_s=400), RdmaPort(number=2, state="down", rate_gbit_s=10)
    machine = topology(2)
    card = msgspec.structs.replace(machine.nics[0], role="compute", ports=ports)

    assert "compute: 400 Gb/s, down" in lines(drawn(msgspec.structs.replace(machine, nics=(card,))), "nic")
    assert not any("Gb/s" in text for text in lines(drawn(machine), "nic"))


def test_a_lost_gpu_is_drawn():
    lost = finding("inventory", "gpu:0000:ff:00.0", cause="gpu-lost", gpu_index=9)
    drawing = drawn(msgspec.structs.replace(topology(2), findings=(lost,)))

    assert boxes(drawing, "node")[-1].xpath("b")[0].text == "not usable"
    assert lines(drawing, "gpu")[-3:] == ["GPU9", "0000:ff:00.0", "\u00d7 FAIL gpu-lost"]
