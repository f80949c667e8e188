"""Clock, power and temperature as a drawing: units, a legend that fits, and colors for what differs."""

import re
from xml.etree import ElementTree

from gpucheck.model.compute import ComputeDevice, Sample
from gpucheck.render.compute.traces import COLORED, drawn, height
from gpucheck.render.html import PAGES
from gpucheck.render.svg import document

SVG = "{http://www.w3.org/2000/svg}"


def gpu(index, degrees=65.0, seconds=30.0):
    samples = tuple(
        Sample(at=seconds * n / 10, sm_clock_mhz=1980.0, power_w=700.0, temperature_c=degrees) for n in range(11)
    )
    return ComputeDevice(index=index, name="H100", traces=samples)


def drawing(*gpus):
    return ElementTree.fromstring(document(760, height(gpus), "t", *drawn(gpus)))  # noqa: S314 - our own output


def words(root):
    return ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]


def test_each_plot_has_its_unit_and_the_axis_is_time_under_load():
    found = words(drawing(gpu(0)))

    assert {"SM clock, MHz", "power, W", "temperature, \u00b0C", "time under load", "GPU 0", "30 s"} <= set(found)


def test_what_no_gpu_reported_has_no_plot():
    found = words(drawing(gpu(0)))

    assert not [word for word in found if "memory" in word or "held" in word]
    assert height([gpu(0)]) < height([gpu(0), hot_gpu()])


def hot_gpu():
    samples = tuple(
        Sample(
            at=float(n), memory_temperature_c=96.0, memory_clock_mhz=2619.0, reasons=("sw-thermal",) if n > 5 else ()
        )
        for n in range(11)
    )
    return ComputeDevice(index=1, name="H100", traces=samples)


def test_memory_and_throttle_reasons_are_drawn():
    found = words(drawing(gpu(0), hot_gpu()))

    assert {"memory clock, MHz", "memory temperature, \u00b0C", "clock held by heat or power brake, 1 = yes"} <= set(
        found
    )


def test_hours_are_hours():
    found = words(drawing(gpu(0, seconds=48 * 3600.0)))

    assert "40 h" in found
    assert not any(text.endswith(" s") for text in found)


def test_of_many_gpus_those_that_differ_have_a_color_and_the_legend_fits():
    gpus = [gpu(n, 88.0 if n == 41 else 65.0) for n in range(72)]
    root = drawing(*gpus)
    found = words(root)

    assert "GPU 41" in found
    assert "66 other GPUs" in found
    assert all(float(text.get("y")) <= height(gpus) for text in root.iter(f"{SVG}text"))
    keys = [line.get("class") for line in root.iter(f"{SVG}line") if "line" in line.get("class").split()]
    assert len(keys) == len(set(keys)) == COLORED + 1


def test_a_page_has_a_color_for_each_line():
    rules = (PAGES / "chart.css").read_text(encoding="utf-8")

    assert re.findall(r"\.line(\d) \{ stroke: light-dark", rules) == [str(n) for n in range(COLORED)]
