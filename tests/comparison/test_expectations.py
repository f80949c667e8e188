"""Expectations: an error in the file names its line, a difference of the host is a finding."""

import msgspec
import pytest

from gpucheck import comparison
from gpucheck.foreign.documents import DocumentProblem
from gpucheck.model import Verdict
from tests.comparison.reports import GPUS, copied, healthy, loud, report, without_state
from tests.machines import h100, p100

WHOLE = """
schema: gpucheck.expectations/1
versions: {driver: ">=570,<590", kernel_module: proprietary}
gpus:
  count: 2
  model: H100-SXM5-80GB
  models: {H100: 2, P100: 0}
  memory_mib: 80000
  ecc: true
  mig: off
  persistence: true
  compute_mode: default
  power_limit_w: 700
  nvlinks: 18
  pcie_generation: 5
  pcie_width: 16
pairs: {NV18: 1}
network: {devices: 0, ports: {400: 0}}
floors:
  p2p_uni_gb_s: {NV18: 300}
  p2p_bidir_gb_s: 300
  h2d_gb_s: 50
  d2h_gb_s: 50
ceilings: {p2p_latency_us: 3}
"""


def judged(text, seen):
    return list(comparison.evaluate(seen, comparison.read(text.encode(), "site.yml")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus:\n  cuont: 8", "site.yml:2: gpus.cuont: no such key. Did you mean count?"),
        ("gpu: {count: 8}", "site.yml:1: gpu: no such key. Did you mean gpus?"),
        ("gpus: {count: eight}", "site.yml:1: gpus.count: eight is not a whole number"),
        ("gpus: {count: 8, count: 4}", "stated twice"),
        ("gpus: {ecc: maybe}", "neither true nor false"),
        ("gpus: {compute_mode: exclusiv-process}", "Did you mean exclusive-process?"),
        ("gpus: {pcie_width: 64}", "64 is not between 1 and 32"),
        ("versions: {driver: newest}", "site.yml:1: versions.driver: 'newest' is neither"),
        ("versions: {driver: auto}", "auto is not an expectation"),
        ("network: {ports: {HDR: 8}}", "site.yml:1: network.ports: a rate is a whole number"),
        ("pairs: {NVL18: 28}", "pairs.NVL18: no path class"),
        ("floors: {p2p_uni_gb_s: 300 GB/s}", "has a unit"),
        ("floors: {p2p_uni_gib_s: 300}", "multiply GiB/s by 1.0737"),
        ("floors: {p2p_latency_us: 3}", "floors.p2p_latency_us: no such key"),
        ("schema: gpucheck.expectations/2\ngpus: {count: 1}", "gpucheck.expectations/2 is not gpucheck.expectations/1"),
        ("gpus:\n", "expects nothing"),
        ("gpus: {}\npairs: {}", "expects nothing"),
        ("# nothing", "there is nothing in it"),
        ("gpus: {count: 8", "not YAML"),
        ("- gpus", "this must be 'key: value' lines"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_its_place(text, words):
    with pytest.raises(DocumentProblem) as problem:
        comparison.read(text.encode(), "site.yml")

    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


def test_what_is_no_text_is_refused():
    with pytest.raises(DocumentProblem, match="byte 8: not UTF-8"):
        comparison.read(b"gpus: # \xff", "site.yml")


def test_a_host_that_is_as_expected_passes_every_key():
    findings = judged(WHOLE, report(*GPUS, measured=copied()))

    assert [f.verdict for f in findings] == [Verdict.PASS] * 23
    told = {line.split(": ", 1)[1] for f in findings for line in f.evidence}
    assert {"gpus.models.P100", "gpus.ecc", "pairs.NV18", "floors.p2p_uni_gb_s.NV18"} <= told


@pytest.mark.parametrize(
    ("key", "value", "gpu", "seen", "cause"),
    [
        ("memory_mib", 81921, h100(1), 81920, "site-expectation"),
        ("vbios", "96.00", healthy(h100(1), vbios="95.00"), "95.00", "site-expectation"),
        ("ecc", "true", healthy(h100(1), ecc=False), False, "site-expectation"),
        ("mig", "off", healthy(h100(1), mig=True), True, "mig-enabled"),
        ("persistence", "yes", healthy(h100(1), persistence=False), False, "persistence-off"),
        ("compute_mode", "default", healthy(h100(1), compute_mode="prohibited"), "prohibited",
         "compute-mode-exclusive"),
        ("power_limit_w", 700, healthy(h100(1), power_limit_w=600.0), 600.0, "power-limit-lowered"),
        ("nvlinks", 18, msgspec.structs.replace(h100(1), nvlinks=h100(1).nvlinks[:17]), 17, "nvlink-down"),
        ("pcie_generation", 5, msgspec.structs.replace(h100(1), pcie=p100(0).pcie), 3, "pcie-link-downgraded"),
        ("pcie_width", 16, msgspec.structs.replace(h100(1), pcie=msgspec.structs.replace(h100(1).pcie, width=8)), 8,
         "pcie-width-reduced"),
    ],
)  # fmt: skip
def test_a_gpu_that_differs_is_named_with_its_key_and_line(key, value, gpu, seen, cause):
    good = healthy(h100(0), vbios="96.00", power_limit_w=700.0)
    if key == "memory_mib":
        good = msgspec.structs.replace(good, memory_bytes=good.memory_bytes + (1 << 30))
    findings = judged(f"gpus:\n  {key}: {value}\n", report(good, gpu))

    assert [(f.verdict, f.subject, f.seen, f.cause) for f in findings] == [
        (Verdict.FAIL, f"gpu:{gpu.pci_bus_id}", seen, cause)
    ]
    assert findings[0].evidence == (f"site.yml:2: gpus.{key}",)
    assert findings[0].values["key"] == f"gpus.{key}"


@pytest.mark.parametrize(
    ("text", "subject", "seen"),
    [
        ("gpus: {count: 4}", "host", 2),
        ("gpus: {count: 1}", "host", 2),
        ("gpus: {models: {H100: 1}}", "host", 2),
        ("gpus: {model: A100-SXM4-80GB}", "gpu:0000:1b:00.0", "NVIDIA H100 80GB HBM3"),
        ("versions: {driver: 570}", "host", "driver 580.178.04"),
        ("versions: {tensorflow: 2}", "host", "tensorflow not found"),
        ("versions: {kernel_module: open}", "host", "proprietary"),
        ("pairs: {NV18: 2}", "host", 1),
        ("pairs: {PIX: 1}", "host", 0),
        ("floors: {p2p_uni_gb_s: {NV18: 300}}", "pair:0000:1b:00.0-0000:2b:00.0", 190.0),
        ("floors: {p2p_uni_gb_s: {PIX: 30}}", "host", "no PIX pair"),
        ("floors: {h2d_gb_s: 55}", "gpu:0000:1b:00.0", 50.4),
        ("ceilings: {p2p_latency_us: 2}", "pair:0000:1b:00.0-0000:2b:00.0", 2.2),
    ],
)
def test_an_expectation_that_is_not_met_is_a_failure(text, subject, seen):
    first, *_ = judged(text, report(*GPUS, measured=copied(slow=((0, 1),))))

    assert (first.verdict, first.subject, first.seen) == (Verdict.FAIL, subject, seen)
    assert first.cause
    assert first.fix


def test_a_misspelt_model_says_which_was_meant():
    (first, _) = judged("gpus: {model: H100-SMX5-80GB}", report(*GPUS))

    assert (first.code, first.values["near"]) == ("comparison.model-misspelled", ("NVIDIA H100 80GB HBM3",))


def test_what_nobody_tells_is_unknown_and_no_pass():
    """No NVML, a GPU that does not tell, copies that gave nothing."""
    mute = healthy(h100(1), vbios=None)
    (only,) = judged("gpus: {vbios: '96.00'}", report(healthy(h100(0), vbios="96.00"), mute))
    assert (only.verdict, only.subject) == (Verdict.UNKNOWN, f"gpu:{mute.pci_bus_id}")

    (blind,) = judged("gpus: {count: 8, nvlinks: 18}", report())
    assert (blind.verdict, blind.wanted) == (Verdict.UNKNOWN, 8)
    assert judged("gpus: {count: 0}", report())[0].verdict is Verdict.PASS
    assert judged("pairs: {NV18: 1}", msgspec.structs.replace(report(), topology=None))[0].verdict is Verdict.UNKNOWN


def test_an_nvlink_that_nvml_does_not_report_may_be_up():
    gpu, gap = without_state(h100(1), 3)
    seen = report(h100(0), gpu, gaps=(gap,))

    assert [f.verdict for f in judged("gpus: {nvlinks: 18}", seen)] == [Verdict.UNKNOWN]
    assert [f.verdict for f in judged("gpus: {nvlinks: 17}", seen)] == [Verdict.PASS]
    assert [f.verdict for f in judged("pairs: {NV18: 1}", seen)] == [Verdict.UNKNOWN]


@pytest.mark.parametrize("versions", [{}, {"driver": None, "cuda": None, "torch": None}])
def test_a_version_that_could_not_be_read_is_unknown(versions):
    """Without NVML there is no CUDA version; after a read that hangs, none at all."""
    (only,) = judged("versions: {cuda: 12}", msgspec.structs.replace(report(*GPUS), versions=versions))

    assert (only.verdict, only.code) == (Verdict.UNKNOWN, "comparison.version-unknown")


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        ("{NV18: 1}", Verdict.UNKNOWN),
        ("{NV18: 0}", Verdict.UNKNOWN),
        ("{NV18: 2}", Verdict.FAIL),
    ],
)
def test_a_pair_of_an_unknown_class_may_be_of_each(pairs, verdict):
    seen = report(*GPUS)
    unknown = tuple(msgspec.structs.replace(pair, cls=None) for pair in seen.topology.pairs)
    seen = msgspec.structs.replace(seen, topology=msgspec.structs.replace(seen.topology, pairs=unknown))

    assert judged(f"pairs: {pairs}", seen)[0].verdict is verdict


@pytest.mark.parametrize(
    ("without", "floor", "code"),
    [
        (2, 100, "comparison.copies-failed"),
        (1, 100, "comparison.copies-failed"),
        (1, 900, "comparison.below-floor"),
        (0, 100, None),
    ],
)
def test_pairs_without_a_result_meet_no_floor(without, floor, code):
    """Their copies failed: another finding states that, and the class is there. One that is below it decides."""
    measured = copied() | {"matrices": {}}
    lost = [pair | {"measured": None} for pair in measured["pairs"][:without]]
    measured["pairs"] = lost + measured["pairs"][without:]
    (only,) = judged(f"floors: {{p2p_uni_gb_s: {{NV18: {floor}}}}}", report(*GPUS, measured=measured))

    assert only.code == code
    assert (only.verdict is Verdict.PASS) is (code is None)


def test_a_floor_is_skipped_where_nothing_was_to_be_measured_and_unknown_where_it_failed():
    floor = "floors: {p2p_uni_gb_s: 300}"
    lost = loud(judged("gpus: {count: 1}", report(*GPUS)))[0]
    broken = msgspec.structs.replace(lost, check="p2p", verdict=Verdict.UNKNOWN)

    assert judged(floor, report(*GPUS))[0].verdict is Verdict.SKIP
    assert judged(floor, report(*GPUS, findings=(broken,)))[0].verdict is Verdict.UNKNOWN
    assert judged(floor, report(GPUS[0], measured=copied(GPUS[:1])))[0].verdict is Verdict.UNKNOWN
