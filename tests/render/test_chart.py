"""Charts: round ticks, places inside the axes, and drawings that are well-formed XML."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest

from gpucheck.model.bandwidth import BandwidthReport, SizePoint
from gpucheck.render.bandwidth.plot import to_svg as sweep
from gpucheck.render.chart import Plot, Scale, from_zero
from tests.render.hostile import hostile

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 500), [0, 100, 200, 300, 400, 500]),
        (Scale(-2.5, -2.47), [-2.5, -2.49, -2.48, -2.47]),
        (Scale(1, 1000, logarithmic=True), [1, 10, 100, 1000]),
        (Scale(3, 3), [3]),
        (from_zero(210), [0, 50, 100, 150, 200, 250]),
        (from_zero(0), [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round_numbers(scale, ticks):
    assert scale.ticks() == pytest.approx(ticks)


@pytest.mark.parametrize("number", [-1e300, -1.0, 0.0, 5.0, 10.0, float("inf")])
@pytest.mark.parametrize("scale", [Scale(0, 10), Scale(1, 10, logarithmic=True), Scale(7, 7), from_zero(1e300)])
def test_every_number_is_placed_inside_the_axis(scale, number):
    assert 0 <= scale.part(number) <= 1


def test_plot_places_its_corners():
    plot = Plot(10, 20, 110, 70, Scale(0, 1), Scale(0, 1))

    assert (plot.at(0, 0), plot.at(1, 1)) == ((10, 70), (110, 20))


def test_line_of_a_sweep_rises_with_its_values():
    points = tuple(SizePoint(src=0, dst=0, cls=None, size_bytes=1 << n, gb_s=n * 7.0) for n in range(10, 30))
    root = ElementTree.fromstring(sweep(hostile(BandwidthReport, sizes=points)))  # noqa: S314 - our own output
    line = root.find(f"{SVG}polyline")
    places = [tuple(map(float, point.split(","))) for point in line.get("points").split()]

    assert len(places) == len(points)
    assert all(a[0] < b[0] and a[1] > b[1] for a, b in pairwise(places))
