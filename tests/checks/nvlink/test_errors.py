"""Error counters of NVLinks, and the links between a GPU and its Grace CPU."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.nvlink import errors
from gpucheck.model import C2cLink, NvLink5Counts, NvmlGap
from tests.checks.judging import judge, with_health
from tests.fakes import facts
from tests.machines import h100, p100, reading

GPU = h100(0)
QUIET = dict.fromkeys(NvLink5Counts.__struct_fields__, 0) | {"effective_ber": 0xFFF, "symbol_ber": 0xFFF}


def refused(gpu, call, code, subject="gpu:{}"):
    gap = NvmlGap(call=call, subject=subject.format(gpu.pci_bus_id), code=code, name="NVMLError_Unknown")
    return facts(nvml=replace(reading(gpu), gaps=(gap,)))


def up_to_hopper(**counts):
    """GPU whose link 14 has these counts, the others none."""
    zero = {"replay_errors": 0, "recovery_errors": 0, "crc_errors": 0}
    links = (replace(link, **(zero | (counts if link.link == 14 else {}))) for link in GPU.nvlinks)
    return facts(nvml=reading(replace(GPU, nvlinks=tuple(links))))


def blackwell(**counts):
    own = {14: NvLink5Counts(**(QUIET | counts))}
    links = (replace(link, counts=own.get(link.link, NvLink5Counts(**QUIET))) for link in GPU.nvlinks)
    return facts(nvml=reading(replace(GPU, nvlinks=tuple(links))))


CLEAN = tuple(C2cLink(link=n, active=True, speed_mb_s=44712, interrupts=0, replays=0) for n in range(5))


def grace(code=None, **changes):
    """GPU with five links to its CPU, of which link 3 is changed. code: of NVML, which refuses their states."""
    links = tuple(replace(link, **changes) if link.link == 3 else link for link in CLEAN)
    gpu = with_health(GPU, c2c=links)
    return facts(nvml=reading(gpu)) if code is None else refused(gpu, errors.STATE_FIELDS[0], code)


RECOVERED, REPEATED = "nvlink.link-recovered", "nvlink.packets-repeated"
FIELD = "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS"
STATE, COUNTER = "nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkErrorCounter"


@pytest.mark.parametrize(
    ("check", "host", "code", "seen"),
    [
        # Some corrected errors are normal; a recovery is not.
        (errors, up_to_hopper(recovery_errors=1), RECOVERED, "NVLink 14: 1 recovery"),
        (errors, up_to_hopper(crc_errors=101), REPEATED, "NVLink 14: 101 CRC errors"),
        (errors, up_to_hopper(crc_errors=40, replay_errors=60), None, "100 errors on 18 NVLinks"),
        # marin-community/marin#9086: 505 recoveries of link 14, five days before the link failed; all others zero.
        (errors, blackwell(recoveries=505, recoveries_succeeded=505), RECOVERED, "NVLink 14: 505 recoveries"),
        (errors, blackwell(recoveries_failed=1), RECOVERED, "NVLink 14: 1 recovery"),
        (errors, blackwell(receive_errors=12000), REPEATED, "NVLink 14: 12,000 receive errors"),
        (errors, blackwell(symbol_errors=90), None, "90 errors on 18 NVLinks"),
        (errors, blackwell(effective_ber=0x30F), None, "0 errors on 18 NVLinks"),
        *[(errors, refused(GPU, call, 999, "link:{}/0"), "nvml.call-failed", None) for call in (STATE, FIELD, COUNTER)],
        (errors, refused(p100(0), STATE, 3, "link:{}/0"), "nvlink.no-error-counters", None),
        ("c2c", grace(replays=100, low_power=True), None, "5 of 5 C2C links active"),
        ("c2c", grace(replays_in_a_row=1), "nvlink.c2c-errors", "C2C link 3: 1 replays in a row"),
        ("c2c", grace(interrupts=2, replays=7), "nvlink.c2c-errors", "C2C link 3: 2 interrupts, 7 replays"),
        # A state that NVML does not report is no pass.
        ("c2c", grace(3, active=None), "nvlink.no-c2c", None),
        ("c2c", grace(13, active=None), "nvml.call-missing", None),
        ("c2c", grace(26, active=None), "nvml.call-deprecated", None),
        ("c2c", grace(4, active=None), "nvml.access-denied", None),
        ("c2c", grace(999, active=None), "nvml.call-failed", None),
        ("c2c", facts(nvml=reading(GPU)), "nvlink.no-c2c", None),
    ],
)
def test_counts_and_states(check, host, code, seen):
    (finding,) = judge(check, host)

    assert finding.code == code
    assert seen in (None, finding.seen)


def test_bit_error_rates_are_recorded_as_nvidia_smi_prints_them():
    """nvml.h: exponent in bits 0 to 7, mantissa in bits 8 to 11; 15e-255 is the healthy baseline."""
    (finding,) = judge(errors, blackwell(recoveries=1, symbol_ber=0x30F))

    assert finding.evidence == ("NVLink 14: 1 recovery, effective bit error rate 15e-255, symbol bit error rate 3e-15",)
