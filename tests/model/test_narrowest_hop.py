"""The narrowest link between a GPU and its root."""

from gpucheck.model import PciDevice, PcieLink, narrowest_hop


def function(bus_id, generation, width, path=(), now=None):
    trained = now or (generation, width)
    link = PcieLink(generation=trained[0], width=trained[1], max_generation=generation, max_width=width)
    return PciDevice(bus_id=bus_id, vendor_id="10de", device_id="2330", class_id="030200", path=path, link=link)


PORT = function("0000:00:01.0", 4, 16)
UP = function("0000:01:00.0", 4, 8)
DOWN = function("0000:02:00.0", 5, 16)
GPU = function("0000:03:00.0", 5, 16, path=(PORT.bus_id, UP.bus_id, DOWN.bus_id), now=(1, 16))


def test_the_uplink_of_a_switch_is_found():
    assert narrowest_hop(GPU, (PORT, UP, DOWN, GPU)) is UP


def test_as_trained_now_an_idle_gpu_is_its_own_narrowest():
    assert narrowest_hop(GPU, (PORT, UP, DOWN, GPU), now=True) is GPU


def test_twice_the_width_of_the_generation_before_is_a_tie_and_the_nearer_one_wins():
    gpu = function("0000:03:00.0", 5, 8, path=(PORT.bus_id,))

    assert narrowest_hop(gpu, (PORT, gpu)) is gpu


def test_a_hop_that_is_not_told_is_left_out():
    """A virtual bridge has no link; a bridge that is not listed is none."""
    silent = PciDevice(bus_id="0000:00:01.0", vendor_id="1b36", device_id="000c", class_id="060400")
    gpu = function("0000:03:00.0", 4, 8, path=(silent.bus_id, "0000:09:00.0"))

    assert narrowest_hop(gpu, (silent, gpu)) is gpu
    assert narrowest_hop(silent, (silent,)) is None
