"""Rates against peers and ceilings, on devices made by hand."""

import re
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucheck.checks.compute.rates import doubtful
from gpucheck.checks.compute.results import RARE, checked, miss_probability
from gpucheck.cli import cli
from gpucheck.compute.running.run import matrix_rate
from gpucheck.knowledge.compute import compute_table, operations_per_clock, operations_row
from gpucheck.knowledge.gpus import gpus
from gpucheck.model import Verdict
from gpucheck.model.compute import ComputeDevice, Rate, Sample
from tests.compute.machines import device, evaluate, loud


def fleet(count=4, **first):
    return [device(0, **first), *(device(number) for number in range(1, count))]


def about(devices, check):
    return [f for f in evaluate(devices) if f.check == check]


def alone(slow, tflops, mhz=1800.0):
    rate = Rate(median=tflops, mad_percent=0.2, samples=30, clock_mhz=mhz)
    return replace(slow, gemm={"bf16": replace(slow.gemm["bf16"], alone=rate)})


def test_healthy_gpus_pass_with_the_loss_that_would_have_been_seen():
    (matrix,) = about(fleet(), "compute-matrix")

    assert matrix.verdict is Verdict.PASS
    assert "more than 5% slower" in matrix.seen
    assert loud(evaluate(fleet())) == []


def test_a_slow_gpu_is_only_possible_until_it_was_measured_alone():
    slow = fleet(tflops=595.0)
    (finding,) = about(slow, "compute-matrix")

    assert (finding.verdict, finding.cause, finding.confidence) == (Verdict.WARN, "slow-compute", "possible")
    assert doubtful(slow) == ((0, "matrix", "bf16"),)


def slow_by(tflops):
    """Four GPUs; the first is slow with the others, and has this rate alone."""
    first, *others = fleet(tflops=595.0)
    return [alone(first, tflops), *others]


DIFFERENT = [device(number, tflops=tflops) for number, tflops in enumerate((700.0, 600.0, 820.0, 650.0, 760.0))]


@pytest.mark.parametrize(
    ("devices", "verdict", "cause", "confidence", "code"),
    [
        (slow_by(595.0), Verdict.FAIL, "slow-compute", "likely", "compute.matrix-slow"),
        (slow_by(698.0), Verdict.WARN, None, None, "compute.slow-together"),
        (DIFFERENT, Verdict.UNKNOWN, None, None, "compute.gpus-differ"),
        ([device(0, tflops=300.0)], Verdict.WARN, "slow-compute", "possible", "compute.matrix-below-ceiling"),
        ([device(0)], Verdict.PASS, None, None, None),
    ],
    ids=["slow alone", "fast alone", "no common rate", "far below the ceiling", "near the ceiling"],
)
def test_matrix_rate_has_the_verdict_that_peers_and_ceiling_allow(devices, verdict, cause, confidence, code):
    (finding,) = about(devices, "compute-matrix")

    assert (finding.verdict, finding.cause, finding.confidence) == (verdict, cause, confidence)
    assert finding.code == code


@pytest.mark.parametrize("found", [[device(0, tflops=300.0)], slow_by(595.0)])
def test_a_virtual_gpu_without_its_license_is_no_slow_board(found):
    def matrix(licensed):
        first = replace(found[0], licensed=licensed, gsp_firmware="off")
        (finding,) = (f for f in about([first, *found[1:]], "compute-matrix") if f.verdict is not Verdict.PASS)
        return finding

    unlicensed, licensed = matrix(licensed=False), matrix(licensed=True)
    assert (unlicensed.cause, licensed.cause) == ("vgpu-unlicensed", "slow-compute")
    assert unlicensed.code == "compute.slow-unlicensed"


def test_a_lower_clock_is_no_slower_matrix():
    """Its clock is the finding, not what it does in one clock."""
    slow = fleet(mhz=1500.0, tflops=700.0 * 1500 / 1800)

    assert [f.verdict for f in about(slow, "compute-matrix")] == [Verdict.PASS]
    (clock,) = about(slow, "compute-clocks")
    assert (clock.verdict, clock.subject) == (Verdict.WARN, f"gpu:{slow[0].bus_id}")


def test_slow_memory_is_memory_alone():
    (finding,) = about(fleet(gb_s=2550.0), "compute-memory")

    assert (finding.verdict, finding.cause) == (Verdict.WARN, "slow-memory")
    assert [f.verdict for f in about(fleet(gb_s=2550.0), "compute-matrix")] == [Verdict.PASS]


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.045])
def test_a_small_loss_is_no_finding(loss):
    assert loud(evaluate(fleet(tflops=700.0 * (1 - loss), gb_s=3000.0 * (1 - loss)))) == []


def test_noisy_samples_hide_a_loss_instead_of_making_one():
    assert loud(about(fleet(tflops=640.0, mad=12.0), "compute-matrix")) == []


def test_gpus_of_other_models_are_no_peers():
    other = replace(device(1, tflops=200.0), name="NVIDIA L40S", gemm={}, multiprocessors=142)

    assert loud(evaluate([device(0), other])) == []


def test_cpu_processes_are_never_judged_by_rates():
    cpus = [replace(device(number, tflops=tflops), bus_id=None, traces=()) for number, tflops in enumerate((0.01, 0.1))]

    assert {f.check for f in evaluate(cpus)} == {"compute-results"}


def held(number, *reasons, mhz=1800.0, part=1.0):
    """A GPU whose clock is held in this part of its readings."""
    made = device(number, mhz=mhz)
    count = round(part * 40)
    samples = [
        Sample(at=float(at), sm_clock_mhz=mhz, temperature_c=88, reasons=reasons if at < count else ())
        for at in range(40)
    ]
    return replace(made, traces=tuple(samples))


def clocks(*devices):
    return [f for f in evaluate(devices) if f.check == "compute-clocks"]


@pytest.mark.parametrize(
    ("reason", "verdict", "code"),
    [
        ("hw-power-brake", Verdict.FAIL, "compute.clock-power-brake"),
        ("hw-thermal", Verdict.FAIL, "compute.clock-too-hot"),
        ("hw-slowdown", Verdict.FAIL, "compute.clock-slowdown"),
        ("sw-thermal", Verdict.WARN, "compute.clock-heat-limit"),
    ],
)
def test_a_reason_of_its_own_is_named(reason, verdict, code):
    (finding,) = clocks(held(0, reason), device(1), device(2))

    assert (finding.verdict, finding.code) == (verdict, code)
    assert (finding.cause, finding.confidence) == ("throttled", "certain")
    assert finding.subject == f"gpu:{device(0).bus_id}"


LOWERED = replace(held(0, "sw-power-cap", mhz=1500.0), power_limit_w=500.0)
SET = replace(held(0, "app-clocks", mhz=800.0), application_clock_mhz=800, default_application_clock_mhz=1980)


@pytest.mark.parametrize(
    ("slow", "verdict", "cause", "code"),
    [
        (held(0, "sw-thermal", mhz=1400.0), Verdict.FAIL, "throttled", "compute.clock-heat-limit"),
        (held(0, "sw-power-cap"), Verdict.PASS, None, None),  # at the default limit
        (LOWERED, Verdict.WARN, "power-limit-lowered", "compute.power-limit-holds-clock"),
        (replace(held(0), power_limit_w=690.0), Verdict.PASS, None, None),  # a lower limit that holds nothing
        (SET, Verdict.WARN, "clock-limited", "compute.application-clock-lowered"),
        (replace(held(0, mhz=1400.0), licensed=False), Verdict.WARN, "vgpu-unlicensed", "compute.clock-unlicensed"),
        (held(0, "hw-slowdown", part=1 / 40), Verdict.PASS, None, None),  # one reading, at a change of load
    ],
)
def test_what_holds_a_clock_is_named_if_it_is_not_normal(slow, verdict, cause, code):
    (finding,) = clocks(slow, device(1), device(2))

    assert (finding.verdict, finding.cause, finding.code) == (verdict, cause, code)


def test_clocks_that_were_not_read_are_unknown():
    (finding,) = clocks(replace(device(0), traces=()), replace(device(1), traces=()))

    assert finding.verdict is Verdict.UNKNOWN


def clockless(number, **more):
    """A GPU of which NVML reported no clock."""
    made = device(number, **more)
    return replace(made, traces=(), gemm={"bf16": replace(made.gemm["bf16"], clock_mhz=None, of_ceiling=None)})


def test_a_gpu_whose_clock_was_not_read_is_unknown_and_accuses_nobody():
    """Its rate is not per clock, so next to it every other GPU looked a thousand times slower."""
    found = evaluate([clockless(0), device(1), device(2)])

    assert [(f.verdict, f.check, f.subject) for f in found if f.verdict is not Verdict.PASS] == [
        (Verdict.UNKNOWN, check, f"gpu:{device(0).bus_id}") for check in ("compute-clocks", "compute-matrix")
    ]
    assert [doubtful([clockless(0), *rest]) for rest in ([device(1)], [clockless(1)])] == [(), ()]
    (slow,) = about([clockless(0, tflops=500.0), clockless(1), clockless(2)], "compute-matrix")
    assert (slow.verdict, slow.subject) == (Verdict.WARN, f"gpu:{device(0).bus_id}")


def test_alone_without_a_clock_is_no_sign_of_a_fast_gpu():
    (finding,) = about([alone(fleet(tflops=595.0)[0], 595.0, mhz=None), *fleet()[1:]], "compute-matrix")

    assert (finding.code, finding.confidence) == ("compute.matrix-slow", "possible")


def test_clocks_without_what_holds_them_are_no_pass():
    every = [replace(d, traces=tuple(replace(s, reasons=None) for s in d.traces)) for d in (device(0), device(1))]
    (finding,) = clocks(*every)

    assert (finding.verdict, finding.code) == (Verdict.UNKNOWN, "compute.clock-reasons-not-read")
    assert "clock held by what NVML does not report" in finding.evidence[0]


TABLE = compute_table()
BOARDS = [gpu for gpu in gpus() if operations_per_clock(gpu.compute_capability, gpu.name)]


def sheets(name, capability):
    """The data sheets of the board, else those of a board of the same row."""
    row = operations_row(capability, name)
    alike = [one for one in TABLE.published if operations_row(one.capability, one.gpu) is row]
    return [one for one in alike if one.gpu.endswith(name)] or alike


def measured(name, capability, part, faster=1.0):
    """The board at a part of its data sheet; real clocks are not exactly those of the sheet."""
    rows = sheets(name, capability)
    made = device(0, name=name, capability=capability, multiprocessors=rows[0].multiprocessors, gemm={})
    gemm = {
        type_: matrix_rate(
            made, type_, Rate(median=tflops * part, samples=30, mad_percent=0.2, clock_mhz=row.mhz * faster)
        )
        for row in rows
        for type_, tflops in row.tflops.items()
    }
    return device(0, name=name, capability=capability, multiprocessors=rows[0].multiprocessors, gemm=gemm)


def verdicts(*devices):
    return {finding.verdict for finding in evaluate(devices) if finding.check == "compute-matrix"}


def test_all_boards_with_matrix_rates_are_walked():
    assert len(BOARDS) > 100
    assert {gpu.name for gpu in gpus() if float(gpu.compute_capability) >= 6.0} - {gpu.name for gpu in BOARDS} == {
        "NVIDIA GB10",
        "NVIDIA RTX PRO 6000D Blackwell Workstation Edition",
    }


@pytest.mark.parametrize("gpu", BOARDS, ids=lambda gpu: gpu.name)
def test_a_healthy_board_passes_and_one_at_40_percent_does_not(gpu):
    name, capability = gpu.name, gpu.compute_capability

    for part, faster in ((0.85, 1.0), (0.95, 1.0), (0.85, 1.1)):
        made = measured(name, capability, part, faster)
        assert all(rate.of_ceiling is not None for rate in made.gemm.values())
        assert verdicts(made) == {Verdict.PASS}, (part, faster, made.gemm)
    assert verdicts(measured(name, capability, 0.40)) == {Verdict.WARN}


def test_an_unknown_board_is_compared_with_its_own_kind_only():
    known, unknown = "NVIDIA H100 80GB HBM3", "NVIDIA PG520-230"
    slow = {name: device(0, name=name, tflops=100.0, gemm=device(0, tflops=100.0).gemm) for name in (known, unknown)}
    rate = Rate(median=100.0, samples=30, mad_percent=0.2, clock_mhz=1800.0)
    alone = {n: device(0, name=n, gemm={"bf16": matrix_rate(one, "bf16", rate)}) for n, one in slow.items()}
    groups = {n: [one, *(device(i, name=n) for i in (1, 2, 3))] for n, one in alone.items()}

    assert [verdicts(one) for one in alone.values()] == [{Verdict.WARN}, {Verdict.SKIP}]
    codes = [
        next(f.code for f in evaluate(group) if f.verdict is Verdict.WARN and f.check == "compute-matrix")
        for group in groups.values()
    ]
    assert codes == ["compute.matrix-slow", "compute.matrix-slow-unlisted"]


PAGE = (Path(__file__).parents[3] / "docs/compute-coverage.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z0-9_-]+)` \| (\w+) \|(?: `([^`]+)`)? \| (.*) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_a_command_that_exists_or_a_reason(row):
    _, covered, command, difference = row

    assert covered in ("yes", "partly", "no")
    assert bool(command) == (covered != "no")
    assert difference
    if command:
        name, *words = command.split()
        options = {text: option for option in cli.get_command(click.Context(cli), name).params for text in option.opts}
        for option, value in zip(words[::2], words[1::2], strict=True):
            assert value in options[option].type.choices


@given(st.integers(0, 200), st.floats(0, 1, exclude_max=True))
def test_it_is_the_power_that_the_docstring_states(values, rate):
    assert miss_probability(values, rate) == pytest.approx((1 - rate) ** values, rel=1e-6, abs=1e-12)


def test_three_and_seven_times_the_inverse_of_the_rate():
    assert miss_probability(int(3 / RARE)) == pytest.approx(0.05, abs=0.001)
    assert miss_probability(int(7 / RARE)) == pytest.approx(0.001, abs=0.0001)


def of_results(devices, check="compute-results"):
    return [f for f in evaluate(devices) if f.check == check]


def test_equal_digests_pass_and_tell_how_much_was_checked():
    (finding,) = of_results([device(number) for number in range(4)])

    assert finding.verdict is Verdict.PASS
    assert "1.00e+11 values checked on each" in finding.seen
    assert checked([device(0)]) == (10**11, pytest.approx(0.0, abs=1e-40))


def test_repeats_that_differ_are_certain_wherever_others_stand():
    odd, others = of_results([device(0, differing=3), device(1)])

    assert (odd.verdict, odd.cause, odd.confidence) == (Verdict.FAIL, "silent-corruption", "certain")
    assert odd.subject == f"gpu:{device(0).bus_id}"
    assert "3 of 20 repeats differ" in odd.seen
    assert others.verdict is Verdict.PASS


def test_a_gpu_that_disagrees_with_itself_leaves_no_doubt_about_the_other():
    """Of two, the digest of most of its repeats is no vote: that the other one is wrong is not known from it."""
    odd, other = of_results([device(0, differing=3, digest="bb"), device(1)])

    assert (odd.verdict, odd.code) == (Verdict.FAIL, "compute.repeats-differ")
    assert (other.verdict, other.subject) == (Verdict.PASS, "host")


def test_the_minority_is_named():
    odd, others = of_results([device(0), device(1), device(2, digest="bb"), device(3)])

    assert (odd.verdict, odd.cause, odd.confidence) == (Verdict.FAIL, "silent-corruption", "likely")
    assert odd.subject == f"gpu:{device(2).bus_id}"
    assert others.verdict is Verdict.PASS


@pytest.mark.parametrize("digests", ["ab", "aabb", "abcd"])
def test_without_a_majority_nobody_is_named(digests):
    (finding,) = of_results([device(number, digest=digest) for number, digest in enumerate(digests)])

    assert (finding.verdict, finding.subject) == (Verdict.UNKNOWN, "host")


def test_models_do_not_vote_on_each_other():
    other = replace(device(1, digest="bb"), name="NVIDIA L40S")

    assert [f.verdict for f in of_results([device(0), other])] == [Verdict.PASS, Verdict.PASS]


@pytest.mark.parametrize(
    ("counter", "cause", "verdict"),
    [
        ("ecc_uncorrected", "ecc-uncorrected", Verdict.FAIL),
        ("pcie_replays", "pcie-errors", Verdict.WARN),
        ("pcie_fatal", "pcie-errors", Verdict.FAIL),
        ("nvlink_crc", "nvlink-errors", Verdict.WARN),
    ],
)
def test_a_counter_that_rose_is_named(counter, cause, verdict):
    (finding,) = of_results([replace(device(0), errors={counter: 2}), device(1)], "compute-errors")

    assert (finding.verdict, finding.cause, finding.confidence) == (verdict, cause, "certain")


def test_errors_that_ecc_corrected_are_no_finding():
    assert of_results([replace(device(0), errors={"ecc_corrected": 2})], "compute-errors") == []


def empty(number, failed):
    """A GPU without results."""
    bus_id = f"0000:0{number}:00.0"
    return ComputeDevice(index=number, name="NVIDIA L40S", bus_id=bus_id, failed=failed, failure="torch")


@pytest.mark.parametrize(
    ("failed", "verdict", "cause", "code"),
    [
        ("stuck", Verdict.FAIL, "wedged-driver", "compute.work-stuck"),
        ("cuda-error", Verdict.FAIL, None, "compute.cuda-error"),
        ("crashed", Verdict.UNKNOWN, None, "compute.process-crashed"),
        ("no-memory", Verdict.UNKNOWN, None, "compute.no-memory"),
        ("not-started", Verdict.UNKNOWN, None, "compute.torch-rejects-gpu"),
        ("no-process", Verdict.UNKNOWN, "host-resources", "compute.no-process"),
        ("defect", Verdict.UNKNOWN, None, "compute.engine-failed"),
        ("missing-package", Verdict.UNKNOWN, None, "compute.torch-missing"),
    ],
)
def test_a_device_without_results_is_a_finding_with_a_code(failed, verdict, cause, code):
    (finding,) = of_results([empty(0, failed)], "compute")

    assert (finding.verdict, finding.cause, finding.code) == (verdict, cause, code)


@pytest.mark.parametrize(
    ("package", "code"), [("torch", "compute.torch-missing"), ("cublas", "compute.engine-missing")]
)
def test_a_missing_package_is_one_finding_for_all(package, code):
    (finding,) = evaluate([replace(empty(number, "missing-package"), failure=package) for number in range(4)])

    assert (finding.subject, finding.verdict, finding.code) == ("host", Verdict.UNKNOWN, code)


@pytest.mark.parametrize("part", [0.01, 0.3])
def test_a_gpu_without_peers_never_fails_by_a_low_rate(part):
    """Nor do GPUs that are all as slow: an engine that is slow everywhere accuses no board."""
    for count in (1, 4):
        low = [alone(device(n, tflops=700.0 * part, gb_s=3000.0 * part), 700.0 * part) for n in range(count)]
        verdicts = [f.verdict for check in ("compute-matrix", "compute-memory") for f in about(low, check)]

        assert Verdict.WARN in verdicts
        assert Verdict.FAIL not in verdicts
