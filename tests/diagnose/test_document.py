"""Observations: every key of the contract is read, everything else is one clear line with its number."""

import pytest

from gpucheck.diagnose.document import read
from gpucheck.foreign.documents import DocumentProblem
from gpucheck.model.diagnosis.observations import CopyFailure, Damaged, Hang, UnderLoad

WHOLE = """
gpus:
- {model: NVIDIA A10, bus_id: "0000:01:00.0", numa_node: 0, bar1_mib: 256, nvlinks: {active: 0, total: 4},
   pcie: {gen: 4, width: 16, max_gen: 4, max_width: 16, read: load},
   path: [{bus_id: "0000:00:01.0", kind: root-port, gen: 4, width: 16, max_gen: 4, max_width: 16}]}
- {model: unknown, numa_node: -1}
matrix: [[X, SOC], [SYS, X]]
p2p_access: [[null, true], [unknown, 1]]
p2p_status: [[X, OK], [CNS, X]]
host: {virtual: no, iommu: off, acs_redirect: ["0000:00:01.0"], acs: [{bus_id: "0000:00:01.0", control: 0x1d}],
       sockets: 2, cpu: AMD EPYC 7542, rebar: true, driver: "550.54"}
uplinks: [{bus_id: "0000:00:01.0", gen: 2, width: 16, max_gen: 4, max_width: 16, read: idle, gpus: [0]}]
environment: {NCCL_P2P_DISABLE: 1, EMPTY: }
measured:
  p2p_uni_gb_s: [[900, 1.5], [0, X]]
  p2p_bidir_gb_s: [[null, 2], [3, null]]
  staged_uni_gb_s: [[null, 2], [3, null]]
  staged_bidir_gb_s: [[null, 2], [3, null]]
  p2p_latency_us: [[null, 2], [3, null]]
  staged_latency_us: [[null, 2], [3, null]]
  by_class: {SYS: [2, 1], NODE: 3}
  p2p_uni_error: [[null, 0.03], [1, X]]
  p2p_uni_alone: [[null, true], [0, X]]
  p2p_bidir_error: [[null, 0], [unknown, X]]
  p2p_bidir_alone: [[null, no], [-, X]]
  under_load:
  - {gpu: 0, gen: 4, width: 16, max_gen: 5, max_width: 16, throttled: [hw-thermal], errors: {NVLink 3 replays: 7}}
  - {gpu: 1, throttled: [], errors: {}, readings: 3}
  damaged: [{pairs: [[0, 1]], damage: mixed, wrong: 3, words: 800, loaded_only: true, host_only: no, at_source: yes,
             evidence: [a, b]}]
  bytes_compared: 6400
  failures: [{kind: error, step: one direction, pairs: [[1, 0]], code: 217, detail: said}, {kind: stuck, step: open}]
  method: {engine: sm, direction: read}
  host_device: [{gpu: 1, numa_node: 0, h2d_gb_s: 20, d2h_gb_s: 21}]
  flows: [{pairs: [[0, 1], [1, 0]], total_gb_s: 30}]
  integrity_bad_pairs: [[0, 1]]
  damage: bit-flip
  hang: {op: all_reduce, gpus: [0, 1], with_p2p_off: false}
  collectives: [{op: all_reduce, ranks: 2, bytes: 1073741824, busbw_gb_s: 12, transport: SHM}]
"""


def test_every_key_of_the_contract_is_read():
    seen = read(WHOLE)

    assert seen.gpus[0].path[0].kind == "root-port"
    assert (seen.gpus[1].model, seen.gpus[1].numa_node) == (None, None)
    assert seen.matrix == ((None, "SYS"), ("SYS", None))
    assert seen.p2p_access == ((None, True), (None, None))
    assert seen.p2p_status == ((None, "OK"), ("CNS", None))
    assert (seen.host.iommu, seen.host.virtual, seen.host.acs[0].control) == ("off", False, 0x1D)
    assert seen.uplinks[0].gpus == (0,)
    assert seen.environment == {"NCCL_P2P_DISABLE": "1", "EMPTY": ""}
    assert seen.measured.p2p_uni_gb_s == ((None, 1.5), (None, None))
    assert seen.measured.by_class == {"SYS": (1.0, 2.0), "NODE": (3.0, 3.0)}
    assert seen.measured.flows[0].pairs == ((0, 1), (1, 0))
    assert seen.measured.hang == Hang(op="all_reduce", gpus=(0, 1), with_p2p_off=False)
    assert seen.measured.collectives[0].busbw_gb_s == 12.0
    assert seen.measured.p2p_uni_error == ((None, 0.03), (1.0, None))
    assert seen.measured.p2p_uni_alone == ((None, True), (False, None))
    assert seen.measured.p2p_bidir_error == ((None, 0.0), (None, None))
    assert seen.measured.p2p_bidir_alone == ((None, False), (None, None))
    assert seen.measured.under_load[0].errors == {"NVLink 3 replays": 7}
    assert seen.measured.under_load[1] == UnderLoad(gpu=1, throttled=(), errors={}, readings=3)
    assert seen.measured.damaged[0] == Damaged(
        pairs=((0, 1),), damage="mixed", wrong=3, words=800, loaded_only=True, at_source=True, evidence=("a", "b")
    )
    assert seen.measured.bytes_compared == 6400
    assert seen.measured.failures == (
        CopyFailure(kind="error", step="one direction", pairs=((1, 0),), code=217, detail="said"),
        CopyFailure(kind="stuck", step="open"),
    )


@pytest.mark.parametrize("word", ["unknown", "null", "~", ""])
def test_unknown_is_not_no(word):
    seen = read(f"host: {{virtual: {word}, iommu: {word}, acs_redirect: {word}}}\np2p_access: {word}\n")

    assert (seen.host.virtual, seen.host.iommu, seen.host.acs_redirect, seen.p2p_access) == (None, None, None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu: {count: 2}", "observations:1: gpu: no such key. Did you mean gpus?"),
        ("gpus: {count: 129}", "not between 0 and 128"),
        ("gpus: {count: 3}\nmatrix: [[X, SYS], [SYS, X]]", "gpus has 3, matrix has 2"),
        ("matrix: [[X, SYS], [SYS]]", "must be square"),
        ("matrix: [[X, FAR], [FAR, X]]", "FAR is not a path class"),
        ("p2p_status: [[X, MAYBE], [OK, X]]", "is not a P2P status"),
        ("host: {iommu: on}", "may translate or not"),
        ("measured: {p2p_uni_gib_s: [[X, 12], [1, X]]}", "multiply GiB/s by 1.0737"),
        ("measured: {flows: [{pairs: [[0, 0]], total_gb_s: 3}]}", "two different GPUs"),
        ("measured: {host_device: [{gpu: 4}]}\ngpus: {count: 2}", "GPU 4 is named, but there are 2 GPUs"),
        ("measured: {p2p_uni_error: [[X, 3], [0.1, X]]}", "p2p_uni_error[0][1]: is not between 0 and 1. Write 0.03"),
        ("measured: {p2p_bidir_alone: [[X]]}\ngpus: {count: 2}", "measured.p2p_bidir_alone has 1"),
        ("measured: {under_load: [{gpu: 4}]}\ngpus: {count: 2}", "GPU 4 is named, but there are 2 GPUs"),
        (
            "measured:\n  under_load:\n  - {gpu: 0, errors: {replays: some}}",
            ":3: measured.under_load[0].errors",
        ),
        ("measured: {failures: [{kind: stuck, step: x, pairs: [[3, 1]]}]}\ngpus: {count: 2}", "GPU 3 is named"),
        ("{schema: gpucheck.report/1, host: a}", "has no observations. Give that of bandwidth or collectives"),
    ],
    ids=lambda value: value[:40],
)
def test_a_mistake_is_one_line_that_says_where(text, words):
    with pytest.raises(DocumentProblem) as problem:
        read(text)

    assert words in str(problem.value)
    assert "\n" not in str(problem.value)
    assert len(str(problem.value)) < 400
