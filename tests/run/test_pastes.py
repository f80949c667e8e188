"""Readings of one machine together: their judgement, and each of several machines."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpucheck import imports
from gpucheck.host.recording.redaction import Redaction
from gpucheck.imports import ImportProblem
from gpucheck.model import KernelLine, KernelLog, Verdict
from gpucheck.model.diagnosis import ReadRange
from gpucheck.model.diagnosis.observations import (
    HostDevice,
    Measured,
    NicResult,
    Observations,
    ObservedGpu,
    ObservedNic,
    Port,
)
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part, Reading
from gpucheck.run.pastes import NoSuchMachine, diagnosis
from gpucheck.run.pastes.merge import bus_ids_by_index, merge, merged
from tests.imports.pastes.reading import BANDWIDTH
from tests.imports.pastes.samples import KERNEL, MATRIX, P2P_SAMPLE
from tests.shared import from_yaml, sampled


def reading(*texts: str) -> list[Reading]:
    return [imports.read_all(text.encode(), f"{i}.txt") for i, text in enumerate(texts)]


def part(machine: str | None = None, looked_at: tuple[str, ...] = (), **facts) -> Reading:
    where = ReadRange(kind="kernel-log", source=f"{machine}.txt", first_line=1, last_line=9)
    return Reading(parts=(Part(machine=machine, ranges=(where,), looked_at=looked_at, facts=Facts(**facts)),))


def test_one_text_says_the_same_as_its_pieces():
    apart = diagnosis(reading(MATRIX, KERNEL), sources=("a",))
    whole = diagnosis(reading(f"{MATRIX}\n{KERNEL}"), sources=("a",))

    assert [(f.check, f.verdict, f.subject, f.cause) for f in apart.findings] == [
        (f.check, f.verdict, f.subject, f.cause) for f in whole.findings
    ]


def test_each_named_machine_is_judged_by_itself():
    log = KernelLog(lines=(KernelLine(text=KERNEL.splitlines()[2]),), source="pasted log")
    found = diagnosis([part("node07", kernel_log=log), part("node08")], sources=("a", "b"))

    assert [(one.machine, one.verdict) for one in found.machines] == [
        ("node07", Verdict.FAIL),
        ("node08", Verdict.UNKNOWN),
    ]
    assert (found.verdict, found.machine, found.findings, found.gpus) == (Verdict.FAIL, None, (), 1)
    assert (found.counts["fail"], found.counts["unknown"]) == (1, 1)
    assert [one.source for one in found.read] == ["node07.txt", "node08.txt"]


def test_lines_of_several_machines_that_name_none_are_a_machine_of_their_own():
    found = diagnosis([part("node07"), part("node08"), *reading(MATRIX)], sources=("a",))

    assert [one.machine for one in found.machines] == ["node07", "node08", None]
    assert found.machines[2].observations.matrix is not None
    assert [(one.check, one.verdict) for one in found.findings] == [("paste", Verdict.UNKNOWN)]
    assert "0.txt lines 1-5" in str(found.findings[0].seen)


def test_lines_that_name_no_machine_are_of_the_only_one_of_their_file():
    row = replace(part("node07").parts[0], machine=None, facts=reading(MATRIX)[0].parts[0].facts)
    found = diagnosis([part("node07"), Reading(parts=(row,)), part("node08")], sources=("a",))

    assert [(one.machine, one.gpus) for one in found.machines] == [("node07", 4), ("node08", 0)]
    assert found.findings == ()


def test_a_requested_machine_has_no_parts_of_another_one():
    row = replace(part("node08").parts[0], machine=None, facts=reading(MATRIX)[0].parts[0].facts)
    inputs = [part("node07"), Reading(parts=(row,)), part("node08")]

    assert [diagnosis(inputs, sources=("a",), machine=name).gpus for name in ("node07", "node08")] == [0, 4]


def test_jobs_on_two_hosts_are_two_machines():
    run = BANDWIDTH["nccl-tests.txt"]
    other = run.replace("gpu59", "gpu60").replace("12.68", "3.68").replace("12.66", "3.66")
    found = diagnosis(reading(run, other), sources=("a", "b"))

    assert [one.machine for one in found.machines] == ["gpu59", "gpu60"]
    rates = [[row.busbw_gb_s for row in one.observations.measured.collectives] for one in found.machines]
    assert rates == [[12.68], [3.68]]


def test_a_machine_that_no_input_names_is_refused():
    with pytest.raises(NoSuchMachine, match=r"node08.*The inputs name node07"):
        diagnosis([part("node07")], sources=("a",), machine="node08")
    with pytest.raises(NoSuchMachine, match="name no machine"):
        diagnosis([part()], sources=("a",), machine="node08")


@pytest.mark.parametrize(("one", "other"), [("node07", "node07.example.com"), ("Node07", "node07")])
def test_a_host_with_and_without_its_domain_is_one_machine(one, other):
    assert diagnosis([part(one), part(other)], sources=("a",)).verdict is Verdict.UNKNOWN


def test_addresses_are_not_cut_at_their_dots():
    found = diagnosis([part("10.0.0.1"), part("10.0.0.2")], sources=("a",))

    assert [one.machine for one in found.machines] == ["10.0.0.1", "10.0.0.2"]


def test_a_part_with_other_gpus_is_judged_by_itself_and_its_lines_are_named():
    found = diagnosis(reading(MATRIX, P2P_SAMPLE), sources=("a", "b"))

    assert [(one.machine, one.gpus, one.verdict) for one in found.machines] == [
        (None, 4, Verdict.UNKNOWN),
        (None, 2, Verdict.FAIL),
    ]
    (split,) = found.findings
    assert (split.check, split.verdict) == ("paste", Verdict.UNKNOWN)
    assert split.seen == (
        "1.txt lines 1-8 (simple-p2p) does not fit 0.txt lines 1-5 (nvidia-smi-topo); evaluated separately"
    )
    assert "2 GPUs here, 4" in split.evidence[0]


def test_one_gpu_s_own_result_fits_a_machine_of_several():
    row = HostDevice(gpu=1, h2d_gb_s=25.0, d2h_gb_s=26.0)
    gpus = (ObservedGpu(), ObservedGpu(model="NVIDIA A100"))
    one = part(observed=Observations(gpus=gpus, measured=Measured(host_device=(row,))))
    found = diagnosis([*reading(MATRIX), one], sources=("a", "b"))

    assert found.observations is not None
    assert [gpu.model for gpu in found.observations.gpus] == [None, "NVIDIA A100", None, None]
    assert found.observations.measured.host_device == (row,)


def test_what_says_nothing_of_health_is_unknown():
    found = diagnosis([part(looked_at=("versions",))], sources=("a",))

    assert (found.verdict, [f.check for f in found.findings]) == (Verdict.UNKNOWN, ["paste"])
    assert found.looked_at == ("versions",)
    assert "a training run" in found.unproven


def test_a_gpu_of_a_cut_table_keeps_its_own_number():
    table = (
        "|   5  ERR!                On   | 00000000:91:00.0 Off |                 ERR! |\n"
        "| N/A   ERR!  ERR!   ERR! /  ERR! |      0MiB / 24220MiB |    ERR!      ERR! |\n"
    )
    found = diagnosis(reading(table), sources=("a",))

    assert [(f.gpu_index, f.cause) for f in found.findings if f.verdict is Verdict.FAIL] == [(5, "gpu-lost")]


DATA = Path(__file__).parents[1] / "data"
MOST = 60_000  # characters: the others are of the same tools


def texts():
    for path in sorted(DATA.rglob("*.yml")):
        document = from_yaml(path)
        text = document.get("raw") if isinstance(document, dict) else None
        if isinstance(text, str) and len(text) < MOST:
            yield str(path.relative_to(DATA)), text


TEXTS = dict(texts())


def outcome(text):
    """Of each machine: verdict, findings, and the tools that were recognized."""
    try:
        reading = imports.read_all(text.encode(), "paste.txt")
    except ImportProblem as problem:
        return str(problem)
    found = diagnosis([reading], sources=("paste.txt",))
    return sorted(
        (
            one.verdict.value,
            sorted((f.check, f.verdict.value, f.cause or "", f.subject) for f in one.findings),
            [read.kind for read in one.read],
        )
        for one in (found, *found.machines)
    )


@pytest.mark.parametrize("name", sampled(TEXTS, lambda number, _: number % 9 == 0))
def test_redaction_changes_no_outcome(name):
    text = TEXTS[name]
    redact = Redaction((), [text]).text

    assert outcome("\n".join(map(redact, text.split("\n")))) == outcome(text)


HEADER = "index, name, pci.bus_id, pcie.link.width.current, pcie.link.width.max\n"
ROW = "{0}, NVIDIA L40S, 00000000:{1}:00.0, {2}, 16\n"
TABLE_ROW = (
    "|   {0}  NVIDIA L40S                    On  | 00000000:{1}:00.0 Off |                    0 |\n"
    "| N/A   40C    P0              60W / 350W |    100MiB / 46068MiB |      0%      Default |\n"
)


def parts(*texts: str) -> list[Part]:
    return [part for text in texts for part in imports.read_all(text.encode(), "paste.txt").parts]


def stated(given: Observations | None) -> list[Part]:
    """What the user observed."""
    return [] if given is None else [Part(facts=Facts(observed=given))]


def gpus(*texts: str, given: Observations | None = None) -> tuple[ObservedGpu, ...]:
    return merged([*stated(given), *parts(*texts)]).facts.observed.gpus


def test_listing_of_one_gpu_takes_its_own_place():
    found = gpus(MATRIX, TABLE_ROW.format(2, "41"))

    assert [gpu.bus_id for gpu in found] == [None, None, "0000:41:00.0", None]


def test_listing_in_another_order_is_matched_by_bus_id():
    rows = [ROW.format(0, "01", 16), ROW.format(1, "41", 8)]
    given = Observations(gpus=(ObservedGpu(bus_id="0000:41:00.0"), ObservedGpu(bus_id="0000:01:00.0")))

    assert [gpu.pcie.width for gpu in gpus(HEADER + "".join(rows), given=given)] == [8, 16]


def test_transfers_of_network_cards_stay_where_gpus_move():
    """Their gpu is a link, or none."""
    port = Port(bus_id="0000:41:00.0", gen=5)
    rows = tuple(NicResult(nics=(0, 0), value=48.5, gpu=gpu) for gpu in (None, port))
    one = (ObservedGpu(bus_id="0000:41:00.0"),)
    given = Observations(gpus=one, nics=(ObservedNic(name="mlx5_0"),), measured=Measured(nic_bw_gb_s=rows))
    two = HEADER + ROW.format(0, "01", 16) + ROW.format(1, "41", 16)

    assert merged([*stated(given), *parts(two)]).facts.observed.measured.nic_bw_gb_s == rows


def test_listing_with_other_bus_ids_is_another_machine():
    given = Observations(gpus=(ObservedGpu(bus_id="0000:41:00.0"), ObservedGpu(bus_id="0000:42:00.0")))

    found = merged([*stated(given), *parts(HEADER + ROW.format(0, "01", 16))])

    assert found.facts.observed == given
    assert [one.facts.observed.gpus[0].bus_id for one in found.others] == ["0000:01:00.0"]
    assert [(one.code, "other bus ids" in one.evidence[0]) for one in found.split] == [("pastes.other-machine", True)]


def links(gpu: int, *down: int) -> str:
    """Of a V100, as nvidia-smi nvlink -s prints them."""
    rows = (f"\t Link {n}: {'<inactive>' if n in down else '25.781 GB/s'}\n" for n in range(6))
    return "".join((f"GPU {gpu}: Tesla V100-SXM2-32GB (UUID: GPU-{gpu})\n", *rows))


V100S = P2P_SAMPLE.replace("NVIDIA GeForce RTX 4090", "Tesla V100-SXM2-32GB")
ALL_LINKS = "".join(links(n, *([3] if n == 5 else [])) for n in range(8))
REASONS = "    Clocks Event Reasons\n        Idle                              : Active\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{V100S}\n{ALL_LINKS}",  # a run on two of eight
        f"{REASONS}\n$ nvidia-smi nvlink -s -i 6\n{links(6, *range(6))}",  # nvidia-smi -q -i 6 has no index
        "".join((*map(links, range(4)), links(2), links(3, 4))),  # and again, later
    ],
)
def test_links_that_are_down_are_found_whatever_part_of_the_gpus_others_list(text):
    found = diagnosis(reading(text), sources=("a",))

    assert found.verdict is Verdict.FAIL
    assert {one.check for one in found.findings if one.verdict is Verdict.FAIL} >= {"nvlink-links"}


def test_a_gpu_beyond_those_of_a_run_is_not_lost():
    """simpleP2P used GPUs 0 and 1 of the machine, and of GPU 3 two NVLinks are down."""
    found = diagnosis(reading(f"{P2P_SAMPLE}\n$ nvidia-smi nvlink -s -i 3\n{links(3, 3, 5)}"), sources=("a",))

    assert "nvlink-down" in {one.cause for machine in found.machines for one in machine.findings}
    assert "pastes.other-machine" in {one.code for one in found.findings}


def test_bus_ids_by_index_come_from_the_longest_listing():
    long = TABLE_ROW.format(0, "01") + TABLE_ROW.format(1, "41")

    assert bus_ids_by_index(parts(TABLE_ROW.format(0, "99"), long)) == {0: "0000:01:00.0", 1: "0000:41:00.0"}


def test_compared_and_none_bad_stays_whatever_another_source_adds():
    right = Observations(measured=Measured(integrity_bad_pairs=()))

    for both, differing in (merge(right, Observations()), merge(Observations(), right)):
        assert (both.measured.integrity_bad_pairs, differing) == ((), ())
