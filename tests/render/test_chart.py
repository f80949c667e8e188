"""Charts: round ticks, and places inside the axes."""

import pytest

from gpucheck.render.chart import Plot, Scale, from_zero


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (Scale(0, 500), [0, 100, 200, 300, 400, 500]),
        (Scale(-2.5, -2.47), [-2.5, -2.49, -2.48, -2.47]),
        (Scale(3, 3), [3]),
        (from_zero(210), [0, 50, 100, 150, 200, 250]),
        (from_zero(0), [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_are_round_numbers(scale, ticks):
    assert scale.ticks() == pytest.approx(ticks)


@pytest.mark.parametrize("number", [-1e300, -1.0, 0.0, 5.0, 10.0, float("inf")])
@pytest.mark.parametrize("scale", [Scale(0, 10), Scale(7, 7), from_zero(1e300)])
def test_every_number_is_placed_inside_the_axis(scale, number):
    assert 0 <= scale.part(number) <= 1


def test_plot_places_its_corners():
    plot = Plot(10, 20, 110, 70, Scale(0, 1), Scale(0, 1))

    assert (plot.at(0, 0), plot.at(1, 1)) == ((10, 70), (110, 20))
