"""Pastes of nvidia-smi: faults edited into real ones are judged as on a live host; healthy ones accuse nobody."""

import pytest

from gpucheck import imports
from gpucheck.model import Verdict
from gpucheck.model.diagnosis import Diagnosis
from tests.imports.pastes.reading import DATA, RAW, accused, diagnosed
from tests.shared import from_yaml, sampled

SAMPLES = {name: raw for name, raw in RAW.items() if name.startswith("nvidia-smi-")}
MATRIX = {row["fault"].partition(":")[0]: row for row in reversed(from_yaml(DATA / "fault_matrix.yml"))}
CSV = "nvidia-smi-q-csv-h100-all-fields"
H200, A100X8, P100 = "nvidia-smi-q-h200-idle", "nvidia-smi-q-a100x8-r460", "nvidia-smi-q-x-p100"
H100_TABLE, NVLINK = "nvidia-smi-table-h100-r590", "nvidia-smi-nvlink-s-a100x8"
TOPO = "\n".join(
    ["\t" + "\t".join(f"GPU{i}" for i in range(8))]
    + [f"GPU{i}\t" + "\t".join("X" if i == j else "NV12" for j in range(8)) for i in range(8)]
)


def causes(found: Diagnosis) -> set[str | None]:
    return {one.cause for one in found.findings if one.verdict is not Verdict.PASS}


def line(text: str, name: str, now: str, number: int = 0) -> str:
    """The text with another value in the line of this name; number: of several such lines."""
    lines = text.split("\n")
    at = [i for i, one in enumerate(lines) if one.strip().startswith(name + " ") and ":" in one][number]
    lines[at] = lines[at].partition(":")[0] + ": " + now
    return "\n".join(lines)


EDITS = {
    "ecc-uncorrected": lambda: line(SAMPLES[H200], "DRAM Uncorrectable", "2"),
    "row-remap-failed": lambda: line(SAMPLES[H200], "Remapping Failure Occurred", "Yes"),
    "spare-rows-used": lambda: line(SAMPLES[A100X8], "None", "1 bank(s)", 3),
    "row-remap-pending": lambda: line(SAMPLES[A100X8], "Pending", "Yes", _named(A100X8, "Pending").index("No")),
    "throttle-thermal": lambda: line(SAMPLES[H200], "HW Thermal Slowdown", "Active"),
    "throttle-power-brake": lambda: line(SAMPLES[H200], "HW Power Brake Slowdown", "Active"),
    "power-limit": lambda: line(SAMPLES[H200], "Current Power Limit", "300.00 W"),
    "clock-limit": lambda: SAMPLES[P100].replace(
        "<applications_clocks>\n\t\t\t<graphics_clock>1189", "<applications_clocks>\n\t\t\t<graphics_clock>800"
    ),
    "compute-exclusive": lambda: SAMPLES[H100_TABLE].replace("   Default |", "E. Process |"),
    "mig-pending": lambda: line(SAMPLES[A100X8], "Pending", "Enabled", 0),
    "driver-mismatch": lambda: SAMPLES["nvidia-smi-mismatch"],
    "driver-not-loaded": lambda: SAMPLES["nvidia-smi-no-driver"],
    "gpu-lost": lambda: SAMPLES["nvidia-smi-lost"],
    "nvlink-errors": lambda: SAMPLES["nvidia-smi-nvlink-e-v100-crc"],
    "nvlink-down": lambda: SAMPLES[NVLINK].replace("Link 7: 25 GB/s", "Link 7: <inactive>", 1),
}


def _named(sample: str, name: str) -> list[str]:
    rows = (one.strip() for one in SAMPLES[sample].split("\n"))
    return [one.partition(":")[2].strip() for one in rows if one.startswith(name + " ")]


# Words of the section Fabric as nvidia-smi prints them: azhpc-images#506 (a node that passed with "Insufficient
# Resources"), NVSentinel#883, and the rows that k8s-test-infra lists for fabric health.
FABRIC = [
    ("State", "Completed", Verdict.PASS, None),
    ("State", "In Progress", Verdict.WARN, None),
    ("State", "Not Started", Verdict.WARN, None),
    ("State", "Odd", Verdict.UNKNOWN, None),
    ("Status", "Insufficient Resources", Verdict.FAIL, "fabric-manager-down"),
    ("Status", "Unknown Error", Verdict.FAIL, "fabric-manager-down"),
    ("Status", "Odd", Verdict.FAIL, "fabric-manager-down"),
    ("Summary", "Healthy", Verdict.PASS, None),
    ("Summary", "Unhealthy", Verdict.FAIL, "fabric-degraded"),
    ("Summary", "Limited Capacity", Verdict.WARN, "fabric-degraded"),
    ("Summary", "Odd", Verdict.UNKNOWN, None),
    ("Bandwidth", "Full", Verdict.PASS, None),
    ("Bandwidth", "Degraded", Verdict.WARN, "fabric-degraded"),
    ("Bandwidth", "Odd", Verdict.UNKNOWN, None),
    ("Route Recovery in progress", "True", Verdict.WARN, "fabric-degraded"),
    ("Route Unhealthy", "False", Verdict.PASS, None),
    ("Route Unhealthy", "True", Verdict.FAIL, "fabric-degraded"),
    ("Access Timeout Recovery", "True", Verdict.WARN, "fabric-degraded"),
    ("Incorrect Configuration", "None", Verdict.PASS, None),
    ("Incorrect Configuration", "No Partition", Verdict.FAIL, "fabric-degraded"),
    ("Incorrect Configuration", "True", Verdict.FAIL, "fabric-degraded"),
]


@pytest.mark.parametrize(("name", "word", "verdict", "cause"), FABRIC)
def test_the_fabric_of_a_pasted_page_is_evaluated(name, word, verdict, cause):
    """A GPU whose other values are healthy must not pass without its NVLink fabric."""
    before, heading, after = SAMPLES[H200].partition("    Fabric\n")
    found = diagnosed(before + heading + line(after, name, word))

    assert found.verdict is verdict
    assert causes(found) - {None} == ({cause} if cause else set())


@pytest.mark.parametrize(
    ("name", "word", "verdict"),
    [
        ("GPU Recovery Action", "N/A", Verdict.PASS),
        ("GPU Recovery Action", "Odd", Verdict.FAIL),  # the driver asks for something
        ("Remapping Failure Occurred", "Odd", Verdict.UNKNOWN),
        ("SRAM Threshold Exceeded", "Odd", Verdict.UNKNOWN),
        # What the driver could not read.
        ("DRAM Uncorrectable", "Unknown Error", Verdict.UNKNOWN),
        ("HW Slowdown", "Unknown Error", Verdict.UNKNOWN),
        ("Pending Page Blacklist", "Unknown Error", Verdict.UNKNOWN),
        # Without a time; a healthy H100 of the captures has 174.
        ("Replays Since Reset", "174", Verdict.PASS),
        ("Replays Since Reset", "91234", Verdict.UNKNOWN),
    ],
)
def test_a_word_that_is_not_known_is_no_pass(name, word, verdict):
    assert diagnosed(line(SAMPLES[H200], name, word)).verdict is verdict


LOST, RESET = "[GPU is lost]", "[GPU requires reset]"
MEMORY = "ecc.errors.uncorrected.volatile"


@pytest.mark.parametrize(
    ("changes", "verdict", "cause"),
    [
        ({f"{MEMORY}.total": "3"}, Verdict.FAIL, "ecc-uncorrected"),
        ({f"{MEMORY}.dram": "3", f"{MEMORY}.total": None}, Verdict.FAIL, "ecc-uncorrected"),
        ({f"{MEMORY}.sram.parity": "3", f"{MEMORY}.total": None}, Verdict.FAIL, "ecc-uncorrected"),
        ({"ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "Yes"}, Verdict.FAIL, "ecc-uncorrected"),
        ({"remapped_rows.histogram.none": "1"}, Verdict.WARN, "row-remap"),
        ({"temperature.gpu.tlimit": "2"}, Verdict.WARN, "throttled"),
        ({"enforced.power.limit": "500.00 W"}, Verdict.WARN, "power-limit-lowered"),
        ({"clocks_event_reasons_counters.hw_thermal_slowdown": "3600000000 us"}, Verdict.WARN, "throttled"),
        ({"clocks_event_reasons_counters.hw_power_brake_slowdown": "900000 us"}, Verdict.PASS, None),
        ({"inforom.checksum_validation": "invalid"}, Verdict.WARN, None),
        ({"fabric.state": "In Progress"}, Verdict.WARN, None),
        ({"fabric.status": "Insufficient Resources"}, Verdict.FAIL, "fabric-manager-down"),
        ({"fabric.health.summary": "Unhealthy"}, Verdict.FAIL, "fabric-degraded"),
        ({"gpu_recovery_action": "[Unknown Error]"}, Verdict.UNKNOWN, None),
        ({f"{MEMORY}.total": "[Unknown Error]"}, Verdict.UNKNOWN, None),
        # A GPU with the Xids 48 and 154 reads so, with the rest of its values.
        ({"temperature.gpu": RESET, "utilization.gpu": RESET}, Verdict.FAIL, "gpu-reset-required"),
        ({"temperature.gpu": LOST}, Verdict.FAIL, "gpu-lost"),
        (dict.fromkeys(("temperature.gpu", "utilization.gpu", "pstate"), "[Unknown Error]"), Verdict.FAIL, "gpu-lost"),
        (dict.fromkeys(("power.draw", "power.limit"), "[Unknown Error]"), Verdict.PASS, None),  # of a laptop
    ],
)
def test_a_value_of_a_queried_gpu_is_evaluated(changes, verdict, cause):
    """None: a column that was not queried."""
    head, row = (text.split(", ") for text in SAMPLES[CSV].strip().split("\n"))
    cells = [(name, changes.get(name.split(" ")[0], value)) for name, value in zip(head, row, strict=True)]
    columns, values = zip(*(cell for cell in cells if cell[1] is not None), strict=True)
    found = diagnosed(", ".join(columns), ", ".join(values))

    assert found.verdict is verdict, found.findings
    assert causes(found) - {None} == ({cause} if cause else set())


def test_clocks_that_the_hardware_lowered_before_are_no_pass():
    head, heading, after = SAMPLES[H200].partition("Clocks Event Reasons Counters")
    found = diagnosed(head + heading + line(after, "HW Power Braking", "120000000 us"))

    assert (found.verdict, accused(found)) == (Verdict.WARN, {"throttled"})


MIG_TABLE = "nvidia-smi-table-h100-mig-r590"
HEALTHY, SILENT = "| N/A   41C    P0             69W /  700W ", "|ERR!  ERR!  ERR!             N/A /  N/A  "


@pytest.mark.parametrize(
    ("sample", "old", "new", "verdict", "cause"),
    [
        # As an RTX PRO 6000 was printed of which the same nvidia-smi said "GPU requires reset".
        (H100_TABLE, HEALTHY, SILENT, Verdict.FAIL, "gpu-lost"),
        (H100_TABLE, "Off |                    0 |", "Off |                 ERR! |", Verdict.UNKNOWN, None),
        (MIG_TABLE, "| 32      0 |", "| 32      2 |", Verdict.FAIL, "ecc-uncorrected"),
        (MIG_TABLE, "| 32      0 |", "| 32    N/A |", Verdict.WARN, "mig-enabled"),
    ],
)
def test_a_cell_of_the_table_is_evaluated(sample, old, new, verdict, cause):
    assert old in SAMPLES[sample]
    found = diagnosed(SAMPLES[sample].replace(old, new))

    assert found.verdict is verdict, found.findings
    assert causes(found) - {None, "mig-enabled"} == {cause} - {None, "mig-enabled"}


def test_the_section_alone_is_read():
    """As ``nvidia-smi -q | grep -A 12 Fabric`` prints it, which findings ask for."""
    _, heading, after = SAMPLES[H200].partition("    Fabric\n")
    section = heading + "\n".join(line(after, "Status", "Insufficient Resources").split("\n")[:12])

    assert diagnosed("        GPU Fabric GUID  : N/A\n--\n" + section).verdict is Verdict.FAIL


@pytest.mark.parametrize("fault", EDITS)
def test_a_paste_gives_the_same_cause_as_a_host_with_the_fault(fault):
    found = diagnosed(EDITS[fault]())
    row = MATRIX[fault]
    assert row["cause"] in causes(found), found.findings
    assert accused(found) == {row["cause"]}


@pytest.mark.parametrize(
    ("part", "cause"),
    [("nvidia-smi-q-remap-pending-part", "row-remap"), ("nvidia-smi-q-reasons-thermal-part", "throttled")],
)
def test_a_section_again_below_a_page_is_a_second_reading(part, cause):
    """The page of an idle GPU, then a section of it under load: the later words were lost."""
    assert cause in causes(diagnosed(SAMPLES[H200], SAMPLES[part]))


def test_a_part_that_names_no_gpu_blames_none_by_index():
    found = diagnosed(SAMPLES["nvidia-smi-q-remap-pending-part"])
    pending = next(one for one in found.findings if one.cause == "row-remap")
    assert pending.gpu_index is None
    assert "GPU?" not in pending.fix


def test_a_gpu_of_a_page_that_answers_nothing_is_lost_and_passes_nothing():
    text = SAMPLES[H200]
    for name in ("Product Name", "Compute Mode", "Performance State", "Persistence Mode", "VBIOS Version"):
        text = line(text, name, "GPU is lost")
    found = diagnosed(text)
    assert causes(found) == {"gpu-lost"}


def test_one_gpu_of_eight_says_nothing_of_the_others():
    first = SAMPLES[A100X8].split("GPU 00000002")[0]
    assert "Attached GPUs                             : 8" in first
    for texts in ((first,), (first, TOPO), (TOPO, first), (SAMPLES["nvidia-smi-nvlink-s-one-v100"],)):
        found = diagnosed(*texts)
        said = " ".join(f"{one.seen} {one.why}" for one in found.findings)
        assert "missing" not in said
        assert not causes(found) & {"gpu-lost", "nvlink-missing"}


def test_parts_of_one_machine_find_each_other_by_bus_id_or_index():
    one = SAMPLES["nvidia-smi-nvlink-s-one-v100"]
    table = SAMPLES["nvidia-smi-table-a40-err"].replace("NVIDIA A40         ", "Tesla V100-SXM2... ")
    found = diagnosed(table, one)
    down = next(one for one in found.findings if one.cause == "nvlink-down")
    assert (down.subject, down.gpu_index) == ("gpu:0000:44:00.0", 3)


def test_pages_of_two_machines_are_judged_one_by_one():
    other = SAMPLES[H200].replace("83:00.0", "84:00.0").replace("Bus : 0x83", "Bus : 0x84")
    found = diagnosed(SAMPLES[H200], other)
    buses = [[gpu.bus_id for gpu in one.observations.gpus] for one in found.machines]
    assert buses == [["0000:83:00.0"], ["0000:84:00.0"]]
    assert [one.check for one in found.findings] == ["paste"]


def test_a_generation_below_the_maximum_counts_on_no_busy_gpu():
    text = line(SAMPLES["nvidia-smi-q-r610-geforce-idle-gen1"], "GPU", "40 %", 0)
    found = diagnosed(text)
    assert not causes(found)
    assert found.observations.gpus[0].pcie.read != "load"


def test_a_page_without_its_indentation_is_read():
    flat = "\n".join(one.strip() for one in SAMPLES[A100X8].split("GPU 00000002")[0].split("\n"))
    whole = diagnosed(SAMPLES[A100X8].split("GPU 00000002")[0])
    found = diagnosed(flat)
    assert not causes(found)
    assert {one.check for one in found.findings} >= {"memory-errors", "throttle", "mig", "power-limit"}
    assert {one.check for one in found.findings} <= {one.check for one in whole.findings} | {"power-limit"}


def test_a_table_without_its_first_rows_is_read_from_its_header():
    whole = SAMPLES[H100_TABLE]
    found = diagnosed(whole[whole.index("| GPU  Name") :])
    assert found.unread == ()
    assert len(found.observations.gpus) == len(diagnosed(whole).observations.gpus)


def test_ns_without_the_command_may_be_of_nvlink_and_is_not_taken():
    rows = " \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX"
    assert diagnosed(rows).observations.p2p_status is None
    assert diagnosed("$ nvidia-smi topo -p2p n\n" + rows).observations.p2p_status is None
    assert diagnosed("$ nvidia-smi topo -p2p r\n" + rows).observations.p2p_status == (("X", "NS"), ("NS", "X"))


@pytest.mark.parametrize("sample", sampled(SAMPLES, lambda number, _: number % 4 == 0))
def test_a_paste_that_was_cut_anywhere_accuses_nobody_else(sample):
    whole = causes(diagnosed(SAMPLES[sample]))
    lines = SAMPLES[sample].split("\n")
    for count in range(1, len(lines), max(1, len(lines) // 12)):
        for piece in (lines[:count], lines[count:]):
            try:
                found = diagnosed(*piece)
            except imports.ImportProblem:
                continue
            assert accused(found) <= whole, (count, found.findings)
