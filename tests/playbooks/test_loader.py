"""Whether the loader finds the driver's library: its cache and its folders against what is on disk."""

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.stubs import program

loader = shared("running")


@pytest.fixture
def place(tmp_path, tools):
    """A folder that the cache names the library in."""
    rows = ["2 libs found", f"\\tlibnvidia-ml.so.1 (libc6,x86-64) => {tmp_path}/lib/libnvidia-ml.so.1"]
    program(tools, "ldconfig", "\\n".join([*rows, "\\tlibnvidia-ml.so.1x (libc6,x86-64) => /etc/passwd", ""]))
    (tmp_path / "lib").mkdir()
    return tmp_path / "lib"


def test_a_link_to_a_library_that_went_is_a_lost_one(place):
    """What a downgrade leaves that was cut off before its end; seen in the lab."""
    library = place / "libnvidia-ml.so.580.95.05"
    library.touch()
    (place / loader.LIBRARY).symlink_to("libnvidia-ml.so.580.178.04")
    assert loader.library_lost(folders=())

    (place / loader.LIBRARY).unlink()
    (place / loader.LIBRARY).symlink_to(library.name)
    assert not loader.library_lost(folders=())


def test_the_loaders_own_folders_need_no_cache(place, tmp_path):
    assert loader.library_lost(folders=(str(tmp_path),))

    (tmp_path / loader.LIBRARY).touch()
    assert not loader.library_lost(folders=(str(tmp_path),))


def test_without_a_loader_to_ask_nothing_is_lost(tools):
    assert not loader.library_lost(folders=())
