"""The drawing is well-formed, shows everything once, overlaps nothing and lets no host's string out of its place."""

from itertools import combinations
from xml.etree import ElementTree

import msgspec
import pytest

from gpucheck import imports
from gpucheck.model import Verdict
from gpucheck.model.host.network import RdmaPort
from gpucheck.render.topology import to_svg
from gpucheck.topology import infer_wiring
from tests.imports import nccl
from tests.imports.corpus import CASES, raw
from tests.machines import GEN5_X16
from tests.render.reports import finding
from tests.shared import sampled
from tests.topology.servers import narrowed, topology

SVG = "{http://www.w3.org/2000/svg}"
MACHINES = {
    "2": topology(2),
    "4": topology(4, 2),
    "8": topology(8),
    "16": topology(16),
    "72": topology(72, 4, switch_links=18),
    "mesh": imports.read(nccl.mesh()),
    "switches": imports.read(nccl.hgx()),
}
READABLE = [case for case in CASES if not case.get("negative")]


def drawn(made, **options):
    return ElementTree.fromstring(to_svg(made, **options))  # noqa: S314 - our own output


def words(root):
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def rectangles(root, *kinds):
    """(x, y, right, bottom) of the boxes of these kinds."""
    for rect in root.iter(f"{SVG}rect"):
        if set(kinds) & set(rect.get("class", "").split()):
            x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
            yield x, y, x + width, y + height


@pytest.mark.parametrize("made", MACHINES.values(), ids=MACHINES)
def test_every_gpu_and_card_has_one_box_and_no_two_overlap(made):
    root = drawn(made)
    boxes = list(rectangles(root, "gpu", "nic"))
    _, _, width, height = (float(n) for n in root.get("viewBox").split())

    assert len(boxes) == len(made.gpus) + len(made.nics)
    assert all(x >= 0 and y >= 0 and right <= width and bottom <= height for x, y, right, bottom in boxes)
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


@pytest.mark.parametrize("made", MACHINES.values(), ids=MACHINES)
def test_a_box_lies_inside_the_box_around_it(made):
    outer = list(rectangles(drawn(made), "node"))
    for x, y, right, bottom in rectangles(drawn(made), "switch", "root", "gpu", "nic"):
        assert any(a <= x and b <= y and right <= c and bottom <= d for a, b, c, d in outer)


def test_direct_links_are_chords_whose_width_tells_their_number():
    root = drawn(MACHINES["mesh"])
    chords = [line for line in root.iter(f"{SVG}line") if line.find(f"{SVG}title") is not None]
    widths = {line.findtext(f"{SVG}title").split(": ")[1]: float(line.get("stroke-width")) for line in chords}

    assert len(chords) == 16
    assert widths["2 NVLinks"] > widths["1 NVLinks"]
    assert any(text.startswith("NV2: 2 links each between 0-3") for text in words(root))


def test_links_to_switches_are_spokes():
    root = drawn(MACHINES["switches"])

    assert "4 NVSwitches" in words(root)
    assert "18 NVLinks from GPU 0-7 to the switches: NV18 between any two" in words(root)


def test_a_reduced_link_is_red_in_box_and_words():
    root = drawn(topology(8, uplink={1: narrowed(GEN5_X16, width=8)}))

    assert len(list(rectangles(root, "reduced"))) == 1
    assert any("Gen5 x8 of x16" in text for text in words(root))


def test_simulated_is_said_with_the_profile():
    made = msgspec.structs.replace(MACHINES["2"], simulated=True)

    assert any(text.startswith("SIMULATED p100-pcie-x2") for text in words(drawn(made, about="p100-pcie-x2")))
    assert not any("SIMULATED" in text for text in words(drawn(MACHINES["2"])))


def test_a_name_stays_text():
    """A NIC or GPU name is a host's string."""
    evil = '"><script>alert(1)</script>&\x00\x1b'
    gpus = (msgspec.structs.replace(MACHINES["2"].gpus[0], name=evil), MACHINES["2"].gpus[1])
    text = to_svg(msgspec.structs.replace(MACHINES["2"], gpus=gpus), about=evil)

    assert "<script>" not in text
    assert any("script" in word for word in words(ElementTree.fromstring(text)))  # noqa: S314 - our own output


@pytest.mark.parametrize("case", sampled(READABLE, lambda number, _: number % 4 == 0), ids=lambda case: case["id"])
def test_every_real_paste_can_be_drawn(case):
    made = infer_wiring(imports.read(raw(case)))

    assert len(list(rectangles(drawn(made), "gpu", "nic"))) == len(made.gpus) + len(made.nics)


def test_a_faulty_gpu_is_marked_in_its_box_and_in_the_circle():
    machine = topology(8)
    bus_id = machine.gpus[2].pci_bus_id
    down = finding(subject=f"gpu:{bus_id}", gpu_index=2)
    drawn = ElementTree.fromstring(to_svg(msgspec.structs.replace(machine, findings=(down,))))  # noqa: S314 - we wrote it
    texts = ["".join(text.itertext()) for text in drawn.iter(f"{SVG}text")]

    assert "\u00d7 FAIL nvlink-down" in texts
    assert [shape.tag for shape in drawn.iter() if "fail" in (shape.get("class") or "").split()] == [f"{SVG}rect"]


def test_a_card_has_its_use_and_the_rate_or_state_of_each_port():
    ports = RdmaPort(number=1, state="active", rate_gbit_s=400), RdmaPort(number=2, state="down", rate_gbit_s=10)
    machine = topology(2)
    card = msgspec.structs.replace(machine.nics[0], role="compute", ports=ports)

    assert "compute: 400 Gb/s, down" in words(drawn(msgspec.structs.replace(machine, nics=(card,))))
    assert not any("Gb/s" in text for text in words(drawn(machine)))


def test_a_lost_gpu_is_drawn():
    lost = finding("inventory", "gpu:0000:ff:00.0", cause="gpu-lost", gpu_index=9)
    drawn = to_svg(msgspec.structs.replace(topology(2), findings=(lost,)))

    assert "GPU9" in drawn
    assert "FAIL gpu-lost" in drawn
    assert "not usable" in drawn


def test_a_warning_has_another_tone_than_a_failure_and_dashed_links_are_in_the_legend():
    machine = MACHINES["switches"]
    first, second = (gpu.pci_bus_id for gpu in machine.gpus[:2])
    hot = finding("throttle", f"gpu:{first}", Verdict.WARN, cause="throttled", gpu_index=0)
    down = finding(subject=f"gpu:{second}", gpu_index=1)
    root = drawn(msgspec.structs.replace(machine, findings=(hot, down)))
    tones = {"".join(text.itertext()): text.get("class") for text in root.iter(f"{SVG}text")}

    assert tones["! WARN throttled"] == "caution"
    assert tones["\u00d7 FAIL nvlink-down"] == "bad"
    assert "links of a GPU or pair with a finding" in tones
    assert "links of a GPU or pair with a finding" not in words(drawn(machine))


def test_a_switch_with_one_card_is_as_wide_as_its_words():
    """A switch whose GPU is lost has only a card in it."""
    machine = MACHINES["switches"]
    kept = [function for function in machine.wiring.functions if function.label != "GPU3"]
    alone = msgspec.structs.replace(machine, wiring=msgspec.structs.replace(machine.wiring, functions=tuple(kept)))

    assert not any("\u2026" in text for text in words(drawn(alone)) + words(drawn(machine)))
