"""Pages and rig cards of whole simulated runs: short, marked, and with the explanations where links were measured."""

import pytest
from lxml import html

from gpucheck.render.subjects.card import MOST_LINES
from tests.forked import gpucheck
from tests.shared import sampled

pytestmark = pytest.mark.slow

FAULTS = {
    "hgx-h100-x8": ("nvlink-down:gpu=2,link=3", "power-limit:watts=400,gpu=3", "row-remap-pending:gpu=1"),
    "rtx4090-x8": ("acs-redirect", "pcie-gen:gpu=3,gen=1"),
    "a100-pcie-x8": ("pcie-width:gpu=1,width=8", "iommu-translating"),
    "dgx2-v100": ("driver-mismatch",),
    "dgx1-v100": ("p2p-corrupt:pair=1-3", "throttle-thermal:gpu=2"),
    "a6000-x4-nvlink": ("gpu-lost:gpu=1",),
    "l40s-x4": ("pcie-gen:gpu=2,gen=1", "p2p-slow:pair=0-1"),
    "p100-pcie-x2-sys": ("persistence-off", "p2p-status:pair=0-1"),
}
MACHINES = [case for name, faults in FAULTS.items() for case in ((name, ()), (name, faults))]


def verify(profile, faults, *more):
    chosen = [word for fault in faults for word in ("--fault", fault)]
    return gpucheck("verify", "--simulate", profile, *chosen, *more)


@pytest.mark.parametrize(("profile", "faults"), sampled(MACHINES, lambda number, _: number % 4 in (0, 3)))
def test_a_rig_card_is_short_marked_and_says_what_is_wrong(profile, faults):
    done = verify(profile, faults, "--only", "quick", "--only", "p2p", "--format", "markdown")
    text = done.stdout

    assert text.count("\n") <= MOST_LINES
    assert f"**SIMULATED** hardware: {profile}" in text
    assert "| host |" not in text
    assert text.startswith(("## FAIL", "## WARN", "## UNKNOWN") if faults else "## PASS"), text
    assert ("command that confirms it" in text) or not faults
    assert "### Copies" in text or "driver-mismatch" in faults


def test_the_bandwidth_page_has_matrices_and_findings():
    done = gpucheck(
        "bandwidth", "--simulate", "p100-pcie-x2", "--fault", "pcie-width:gpu=1,width=8", "--format", "html"
    )
    tree = html.fromstring(done.stdout)

    assert done.returncode == 2, done.stderr
    assert tree.findtext(".//title") == f"FAIL: bandwidth, {tree.findtext('.//h1')} (SIMULATED)"
    assert "pcie-width-reduced" in tree.xpath("//section[@id='findings']")[0].text_content()
    assert tree.xpath("//section[@id='copies']//table")
    assert "default-src 'none'" in done.stdout or "default-src &#39;none&#39;" in done.stdout
