"""A host against its own earlier report: what broke, went missing, slowed down, or counts errors faster."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucheck import comparison
from gpucheck.model import EccCounts, NvLink, NvLink5Counts, PcieErrors, PcieLink, RetiredPages, RowRemap, Verdict
from gpucheck.model.record import RECORD
from tests.comparison.reports import GPUS, NOW, THEN, copied, healthy, loud, report, without_state
from tests.machines import h100
from tests.render.reports import finding, passed, skipped

BEFORE = report(*GPUS, started=THEN)
BUS = [gpu.pci_bus_id for gpu in GPUS]


def with_link(gpu, **errors):
    first, *others = gpu.nvlinks
    return replace(gpu, nvlinks=(replace(first, **errors), *others))


def test_a_host_that_is_as_it_was_passes_and_says_since_when():
    (only,) = comparison.compare(BEFORE, report(*GPUS))

    assert (only.check, only.verdict) == ("baseline", Verdict.PASS)
    assert "10.0 h ago" in str(only.seen)


def counted(**now):
    return healthy(h100(0), **now)


# Ten hours lie between the reports; the machines of tests.machines start at 2 replays, 1 corrected, 3 and 7 ECC.
@pytest.mark.parametrize(
    ("gpu", "verdict", "cause", "words"),
    [
        (counted(pcie_errors=PcieErrors(replays=902, correctable=1)), Verdict.WARN, "pcie-errors",
         "PCIe replays: 900 more, 90 an hour"),
        (counted(pcie_errors=PcieErrors(replays=2, correctable=1, non_fatal=1)), None, None, ""),
        (counted(pcie_errors=PcieErrors(non_fatal=1, fatal=0)), Verdict.FAIL, "pcie-errors", "PCIe non-fatal: 1 more"),
        (counted(ecc_counts=EccCounts(aggregate_uncorrected=1)), Verdict.FAIL, "ecc-uncorrected",
         "ECC uncorrected: 1 more"),
        (counted(ecc_counts=EccCounts(volatile_uncorrected=2)), Verdict.FAIL, "ecc-uncorrected",
         "ECC uncorrected: 2 more"),
        (counted(ecc_counts=EccCounts(aggregate_corrected=1007, aggregate_uncorrected=0)), Verdict.WARN,
         "regression", "ECC corrected: 1000 more, 100 an hour"),
        (counted(row_remap=RowRemap(corrected=0, uncorrected=1, pending=False, failed=False)), Verdict.WARN,
         "row-remap", "rows remapped (uncorrectable): 1 more"),
        (counted(retired_pages=RetiredPages(single_bit=0, double_bit=2, pending=False)), Verdict.WARN,
         "row-remap", "pages retired (double-bit): 2 more"),
    ],
)  # fmt: skip
def test_a_counter_that_rises_too_fast_is_told_with_its_rate(gpu, verdict, cause, words):
    """By the time between the reports, not since boot: 900 replays in 100 hours would be nothing."""
    before = BEFORE
    if verdict is None:  # not reported then, so there is nothing to compare
        before = report(counted(pcie_errors=PcieErrors(replays=2)), GPUS[1], started=THEN)
    found = loud(comparison.compare(before, report(gpu, GPUS[1])))

    assert [(f.verdict, f.cause, f.subject) for f in found] == ([(verdict, cause, f"gpu:{BUS[0]}")] if verdict else [])
    assert all(words in str(f.seen) for f in found)


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ({"crc_errors": 5000}, "NVLink 0 CRC errors: 5000 more, 500 an hour"),
        ({"replay_errors": 5000}, "NVLink 0 replays: 5000 more"),
        ({"recovery_errors": 1}, "NVLink 0 recoveries: 1 more"),
        ({"counts": NvLink5Counts(recoveries_succeeded=1)}, "NVLink 0 recoveries: 1 more"),
        ({"counts": NvLink5Counts(malformed_packets=5000)}, "NVLink 0 malformed packets: 5000 more"),
    ],
)
def test_every_port_of_a_gpu_is_compared_with_itself(errors, words):
    none = {name: NvLink5Counts(recoveries=0) if name == "counts" else 0 for name in errors}
    zero, now = with_link(h100(0), **none), with_link(h100(0), **errors)
    (only,) = loud(comparison.compare(report(zero, started=THEN), report(now)))

    assert (only.verdict, only.cause, only.subject) == (Verdict.WARN, "nvlink-errors", f"gpu:{BUS[0]}")
    assert words in str(only.seen)


def test_errors_that_a_bridge_counts_are_told_of_the_bridge():
    """Link errors are often booked at the far end."""
    quiet = {"correctable": 5, "non_fatal": 0, "fatal": 0}
    # The machine of tests.machines shows only its GPUs on the bus; a bridge above one is written into both records.
    bridge = {"bus_id": "0000:00:01.0", "link": msgspec.to_builtins(GPUS[0].pcie), "aer": quiet}

    def with_bridge(seen, **fields):
        kept = seen.measurements[RECORD]
        ports = [*kept["ports"], {**bridge, **fields}]
        return replace(seen, measurements={**seen.measurements, RECORD: {**kept, "ports": ports}})

    before = with_bridge(BEFORE)
    (warned,) = loud(comparison.compare(before, with_bridge(report(*GPUS), aer={**quiet, "correctable": 1005})))
    (failed,) = loud(comparison.compare(before, with_bridge(report(*GPUS), aer={**quiet, "fatal": 1})))

    assert (warned.subject, warned.verdict) == ("link:0000:00:01.0", Verdict.WARN)
    assert "AER corrected: 1000 more, 100 an hour" in str(warned.seen)
    assert (failed.subject, failed.verdict, failed.seen) == ("link:0000:00:01.0", Verdict.FAIL, "AER fatal: 1 more")
    narrow = {**bridge["link"], "width": 8}
    (narrowed,) = loud(comparison.compare(before, with_bridge(report(*GPUS), link=narrow)))
    assert (narrowed.subject, narrowed.seen, narrowed.wanted) == ("link:0000:00:01.0", "x8", "x16")


def test_a_counter_that_was_set_to_zero_is_counted_from_there():
    """After a reboot 700 of what was 902 are 700 new ones."""
    before = report(counted(pcie_errors=PcieErrors(replays=902)), started=THEN)
    (only,) = loud(comparison.compare(before, report(counted(pcie_errors=PcieErrors(replays=700)))))

    assert "700 more, 70 an hour" in str(only.seen)
    assert "set to zero in between" in only.evidence[0]


@given(rise=st.integers(0, 5000), minutes=st.integers(0, 6000))
def test_a_rate_is_judged_over_an_hour_at_least(rise, minutes):
    """Sixty an hour are tolerated, over however long; a handful within a minute is no storm."""
    limit = max(minutes, 60)
    assume(rise != limit)  # there only the rounding of a division decides
    now = counted(pcie_errors=PcieErrors(replays=rise))
    before = report(counted(pcie_errors=PcieErrors(replays=0)), started="2026-11-01T00:00:00+00:00")
    hours, rest = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    after = report(now, started=f"2026-11-{day + 1:02}T{hour:02}:{rest:02}:00+00:00")

    assert bool(loud(comparison.compare(before, after))) == (rise > limit)


def test_a_gpu_that_is_gone_is_a_failure_and_another_board_is_said():
    (gone,) = loud(comparison.compare(BEFORE, report(GPUS[0])))
    assert (gone.verdict, gone.cause, gone.subject) == (Verdict.FAIL, "gpu-lost", f"gpu:{BUS[1]}")

    swapped = replace(GPUS[1], uuid="GPU-new", health=replace(GPUS[1].health, pcie_errors=PcieErrors(replays=10**6)))
    found = list(comparison.compare(BEFORE, report(GPUS[0], swapped)))
    assert [f.verdict for f in found] == [Verdict.SKIP, Verdict.PASS]
    assert found[0].code == "comparison.board-replaced"


def test_a_report_of_another_machine_of_that_name_accuses_nothing():
    other = report(h100(2), h100(3), attributes={"board": ("B",)})
    (only,) = comparison.compare(replace(BEFORE, attributes={"board": ("A",)}), other)

    assert (only.verdict, only.code) == (Verdict.UNKNOWN, "comparison.another-machine")
    moved = replace(other, attributes={"board": ("A",)})
    assert {f.code for f in loud(comparison.compare(replace(BEFORE, attributes={"board": ("A",)}), moved))} == {
        "comparison.gpu-gone"
    }


def test_without_nvml_no_gpu_is_called_gone():
    """The driver check says what is wrong."""
    assert not [f for f in comparison.compare(BEFORE, report()) if f.cause == "gpu-lost"]


@pytest.mark.parametrize(
    ("gpu", "cause", "seen", "wanted"),
    [
        (replace(GPUS[1], pcie=replace(GPUS[1].pcie, width=8)), "pcie-width-reduced", "x8", "x16"),
        (replace(GPUS[1], pcie=replace(GPUS[1].pcie, max_generation=4)), "pcie-link-downgraded", "Gen4", "Gen5"),
        (replace(GPUS[1], nvlinks=(NvLink(link=0, active=False), *GPUS[1].nvlinks[1:])), "nvlink-down", 17, 18),
    ],
)
def test_a_link_that_lost_something_is_a_failure(gpu, cause, seen, wanted):
    found = loud(comparison.compare(BEFORE, report(GPUS[0], gpu)))

    assert {(f.verdict, f.cause, f.seen, f.wanted, f.subject) for f in found} == {
        (Verdict.FAIL, cause, seen, wanted, f"gpu:{BUS[1]}")
    }


def test_an_nvlink_that_nvml_does_not_report_or_that_sleeps_is_not_lost():
    """The check of NVLinks calls the one UNKNOWN and the other WARN."""
    gpu, gap = without_state(GPUS[1], 3)
    assert not loud(comparison.compare(BEFORE, report(GPUS[0], gpu, gaps=(gap,))))
    assert loud(comparison.compare(BEFORE, report(GPUS[0], gpu)))

    asleep = replace(GPUS[1], nvlinks=(NvLink(link=0, active=False, state="asleep"), *GPUS[1].nvlinks[1:]))
    found = comparison.compare(BEFORE, report(GPUS[0], asleep, gaps=()))
    assert Verdict.FAIL not in {finding.verdict for finding in found}


def test_an_idle_link_that_slowed_down_is_not_worse():
    idle = replace(GPUS[1], pcie=PcieLink(generation=1, width=16, max_generation=5, max_width=16))

    assert not loud(comparison.compare(BEFORE, report(GPUS[0], idle)))


@pytest.mark.parametrize(("factor", "verdict"), [(0.97, None), (0.93, Verdict.WARN), (0.8, Verdict.FAIL)])
def test_a_pair_that_slowed_down_by_more_than_noise_is_told(factor, verdict):
    before = report(*GPUS, started=THEN, measured=copied())
    slow = copied()
    for pair in slow["pairs"]:
        pair["measured"]["gb_s"] *= factor
    found = loud(comparison.compare(before, report(*GPUS, measured=slow)))

    assert [(f.verdict, f.cause, f.unit) for f in found] == ([(verdict, "regression", "GB/s")] if verdict else [])
    assert all(f.subject == f"pair:{BUS[0]}-{BUS[1]}" and f.wanted == 380.0 for f in found)


def test_a_noisy_pair_is_given_its_noise():
    noisy, slower = copied(), copied()
    for pair in noisy["pairs"]:
        pair["measured"]["mad_percent"] = 3.0
    for pair in slower["pairs"]:
        pair["measured"]["gb_s"] *= 0.9
    steady, shaky = (report(*GPUS, started=THEN, measured=measured) for measured in (copied(), noisy))

    assert loud(comparison.compare(steady, report(*GPUS, measured=slower)))
    assert not loud(comparison.compare(shaky, report(*GPUS, measured=slower)))


def test_another_engine_is_not_compared():
    before = report(*GPUS, started=THEN, measured=copied(engine="cupy"))
    found = list(comparison.compare(before, report(*GPUS, measured=copied(slow=((0, 1), (1, 0))))))

    assert not loud(found)
    assert [f.values["what"] for f in found if f.code == "comparison.engine-changed"] == ["copies"]


def test_copies_of_another_model_in_the_slot_are_not_compared():
    slow = copied(slow=((0, 1), (1, 0)))
    slow["devices"][1]["name"] = "NVIDIA L4"
    slow["host_device"] = [{**one, "h2d_gb_s": 12.0} for one in slow["host_device"]][1:]
    before = report(*GPUS, started=THEN, measured=copied())

    assert not loud(comparison.compare(before, report(*GPUS, measured=slow)))


def test_a_slower_way_to_the_host_is_told_of_the_gpu():
    slow = copied()
    slow["host_device"] = [{**slow["host_device"][0], "h2d_gb_s": 25.0}]
    before = report(*GPUS, started=THEN, measured=copied())
    (only,) = loud(comparison.compare(before, report(*GPUS, measured=slow)))

    assert (only.verdict, only.subject, only.seen, only.wanted) == (Verdict.FAIL, f"gpu:{BUS[0]}", 25.0, 50.4)


def test_a_check_that_passed_and_fails_now_is_a_regression_with_its_own_remedy():
    """Also where it passed for the host as a whole, and now names a GPU; not where nobody looked then."""
    now = replace(finding("nvlink", f"gpu:{BUS[0]}"), code="nvlink.links-down", values={"down": 1})
    others = (finding("never-run", "host"), finding("sick", "host"), finding("mig", "host", cause="mig-enabled"))
    before = report(*GPUS, started=THEN, findings=(passed("nvlink"), finding("sick", "host"), skipped("mig")))
    found = loud(comparison.compare(before, report(*GPUS, findings=(now, *others))))

    assert [(f.subject, f.verdict, f.cause, f.code, f.values, f.fix) for f in found] == [
        (f"gpu:{BUS[0]}", Verdict.FAIL, "nvlink-down", now.code, now.values, now.fix),
        ("host", Verdict.FAIL, "mig-enabled", None, {}, now.fix),
    ]
    assert "skipped then: no GPU here has MIG" in found[1].evidence
    assert f"as on {THEN}" in str(found[0].wanted)


@pytest.mark.parametrize(
    ("then", "now", "broken"),
    [
        ((f"gpu:{BUS[0]}",), f"gpu:{BUS[1]}", True),
        (("nic:0000:04:00.0",), "nic:0000:14:00.0", True),
        ((f"gpu:{BUS[0]}",), f"pair:{BUS[0]}-{BUS[1]}", False),
        ((f"pair:{BUS[0]}-{BUS[1]}",), f"gpu:{BUS[1]}", False),
        ((f"gpu:{BUS[0]}", "host"), f"gpu:{BUS[1]}", False),
        ((f"gpu:{BUS[0]}",), "host", False),
    ],
)
def test_a_fault_of_one_gpu_since_ever_hides_no_new_one_of_another(then, now, broken):
    """A check names a GPU only if it fails: one that it did not name was fine, unless a finding included it."""
    old = tuple(finding("kernel-log", subject, cause="gpu-lost") for subject in then)
    before = report(*GPUS, started=THEN, findings=old)
    after = report(*GPUS, findings=(*old, finding("kernel-log", now, cause="ecc-uncorrected")))
    found = [(f.verdict, f.subject, f.wanted) for f in loud(comparison.compare(before, after))]

    assert found == ([(Verdict.FAIL, now, f"pass, as on {THEN}")] if broken else [])


def test_what_cannot_be_read_any_more_is_no_regression():
    """It is unknown for the reason of its own check, and not a part to be replaced."""
    mute = finding("nic-ports", "nic:0000:04:00.0", Verdict.UNKNOWN, cause=None, confidence=None)
    before = report(*GPUS, started=THEN, findings=(passed("nic-ports"),))
    (found,) = loud(comparison.compare(before, report(*GPUS, findings=(mute,))))

    assert (found.verdict, found.cause, found.confidence) == (Verdict.UNKNOWN, None, None)
    assert found.because_of == "nic-ports"


def test_what_else_changed_stands_beside_what_got_worse():
    newer = report(GPUS[0], versions={"driver": "590.1"}, attributes={"bios": ("2",)})
    (gone,) = loud(comparison.compare(replace(BEFORE, attributes={"bios": ("1",)}), newer))

    assert {"driver: 580.178.04 then, 590.1 now", "bios: 1 then, 2 now"} <= set(gone.evidence)


def test_reports_without_time_or_counters_between_them_say_so():
    (late,) = comparison.compare(report(*GPUS, started=NOW), report(*GPUS, started=THEN))
    assert (late.verdict, late.code) == (Verdict.UNKNOWN, "comparison.baseline-not-earlier")
    (odd,) = comparison.compare(report(*GPUS, started="yesterday"), report(*GPUS))
    assert odd.verdict is Verdict.UNKNOWN

    older = replace(BEFORE, measurements={})
    found = list(comparison.compare(older, report(*GPUS)))
    assert [f.verdict for f in found] == [Verdict.SKIP, Verdict.PASS]
    assert (found[0].code, found[0].values) == ("comparison.counters-missing", {"report": "baseline"})
    other = replace(older, findings=(passed("shared-memory"),))  # of verify --only
    assert [f.verdict for f in comparison.compare(other, report(*GPUS))] == [Verdict.SKIP]


def test_only_the_same_host_is_comparable():
    assert comparison.not_comparable(BEFORE, BEFORE.host, simulated=False) is None
    assert "report of other" in str(comparison.not_comparable(replace(BEFORE, host="other"), "node", simulated=False))
    assert "SIMULATED" in str(comparison.not_comparable(BEFORE, BEFORE.host, simulated=True))
