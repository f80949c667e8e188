"""Every Xid that means something can be said, in the driver's own form."""

import re

import pytest

from gpucheck.simulator.xids import texts, xid_line


@pytest.mark.parametrize("code", sorted(texts().xid))
def test_every_xid_has_a_line_in_the_drivers_form(code):
    line = xid_line("0000:19:00.0", code)

    assert re.fullmatch(rf"NVRM: Xid \(PCI:0000:19:00\): {code}, \S.*", line)
    assert "{" not in line


def test_the_xids_that_matter_are_there():
    """Every code whose meaning is known."""
    wanted = {13, 31, 32, 43, 45, 46, 48, 54, 62, 63, 64, 68, 69, 74, 78, 79, 80, 85, 92, 94, 95, 109, 110, 119, 120}
    wanted |= {*range(39, 42), *range(70, 73), *range(75, 78), 121, *range(126, 138), 140, 143, *range(144, 152)}
    wanted |= {*range(154, 166), 167, 168, 171, 172}
    assert wanted == set(texts().xid)
