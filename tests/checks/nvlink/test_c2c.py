"""The links between a GPU and its Grace CPU."""

import msgspec
import pytest

from gpucheck.checks.nvlink import c2c
from gpucheck.model import C2cLink, NvmlGap
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge, with_health
from tests.fakes import facts
from tests.machines import h100, reading

CLEAN = tuple(C2cLink(link=n, active=True, speed_mb_s=44712, interrupts=0, replays=0) for n in range(5))


def judged(*links, gaps=()):
    nvml = reading(with_health(h100(0), c2c=links))
    (finding,) = judge(c2c, facts(nvml=msgspec.structs.replace(nvml, gaps=gaps)))
    return finding


@pytest.mark.parametrize(
    ("change", "verdict", "seen"),
    [
        ({}, PASS, "5 of 5 C2C links active"),
        ({"replays": 100, "low_power": True}, PASS, "5 of 5 C2C links active"),
        ({"replays": 101}, WARN, "C2C link 3: 101 replays"),
        ({"replays_in_a_row": 1}, WARN, "C2C link 3: 1 replays in a row"),
        ({"interrupts": 2, "replays": 7}, WARN, "C2C link 3: 2 interrupts, 7 replays"),
        ({"active": False, "speed_mb_s": 0, "interrupts": 2}, FAIL, "4 of 5 C2C links active"),
    ],
)
def test_a_link_that_is_down_or_counts_errors_is_named(change, verdict, seen):
    finding = judged(*CLEAN[:3], msgspec.structs.replace(CLEAN[3], **change), CLEAN[4])

    assert (finding.verdict, finding.seen) == (verdict, seen)


@pytest.mark.parametrize(("code", "verdict"), [(3, SKIP), (13, SKIP), (26, SKIP), (4, UNKNOWN), (999, UNKNOWN)])
def test_a_state_that_nvml_does_not_report_is_no_pass(code, verdict):
    gap = NvmlGap(call=c2c.STATE_FIELDS[0], subject=f"gpu:{h100(0).pci_bus_id}", code=code, name="refused")

    assert judged(msgspec.structs.replace(CLEAN[0], active=None), *CLEAN[1:], gaps=(gap,)).verdict is verdict


def test_a_gpu_without_them_is_not_judged():
    assert judged().verdict is SKIP
