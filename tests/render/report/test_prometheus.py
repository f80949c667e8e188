"""Metrics that node_exporter takes: parsed by Prometheus' own library and, where it is installed, by promtool.

The collector drops a whole file for one double.
"""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpucheck.model import Verdict
from gpucheck.render.machine.prometheus import Family, fleet_to_prometheus, to_prometheus, write
from tests.fleet.reports import merged, steady
from tests.fleet.test_digests import compared, measured, trained
from tests.promtool import needs_promtool, promtool
from tests.render.reports import REPORTS, finding, passed, report, skipped


def samples(text):
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def values(text, name):
    """Labels without the simulated one -> value."""
    return {
        tuple(sorted((k, v) for k, v in s.labels.items() if v and k not in ("simulated", "Hostname"))): s.value
        for s in samples(text)
        if s.name == name
    }


def families(text):
    """By name; a name or a series that stands twice fails."""
    names = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    helps = re.findall(r"^# HELP (\S+) ", text, re.MULTILINE)
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert sorted(names) == sorted(set(names)) == sorted(helps)
    assert sorted(series) == sorted(set(series))
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(found) == len(names)
    return found


@pytest.mark.parametrize("name", REPORTS)
def test_the_collectors_rules_hold(name):
    """No timestamps, no value that is no number, a newline at the end; families with help."""
    text = to_prometheus(REPORTS[name])
    found = families(text)

    assert found
    assert all(family.documentation and name.startswith("gpucheck_") for name, family in found.items())
    assert all(sample.timestamp is None and sample.value == sample.value for sample in samples(text))
    assert re.search("[^\n]\n\\Z", text)


@needs_promtool
@pytest.mark.slow
@pytest.mark.parametrize("name", [*REPORTS, "fleet"])
def test_promtool_has_nothing_to_say(name):
    text = fleet_to_prometheus(merged(*steady())) if name == "fleet" else to_prometheus(REPORTS[name])

    assert promtool("check", "metrics", text=text) == (0, "")


def test_every_sample_of_a_simulated_machine_says_so_and_none_of_a_real_one():
    assert all(sample.labels.get("simulated") == "true" for sample in samples(to_prometheus(REPORTS["sick"])))
    assert not any("simulated" in sample.labels for sample in samples(to_prometheus(REPORTS["healthy"])))


def test_the_worst_verdict_of_a_check_about_a_subject_counts():
    text = to_prometheus(
        report(
            finding("xid", "gpu:0000:01:00.0", Verdict.WARN),
            finding("xid", "gpu:0000:01:00.0", Verdict.FAIL),
            finding("p2p", "pair:0000:01:00.0-0000:02:00.0", Verdict.UNKNOWN),
            finding("pcie", "link:0000:17:00.0", Verdict.WARN),
            passed(),
            skipped(),
        )
    )
    status = values(text, "gpucheck_check_status")

    assert status == {
        (("check", "xid"), ("pci_bus_id", "00000000:01:00.0")): 2,
        (("check", "p2p"), ("pci_bus_id", "00000000:01:00.0"), ("peer", "0000:02:00.0")): 3,
        (("check", "pcie"), ("link", "0000:17:00.0")): 1,
        (("check", "driver"),): 0,
    }
    assert values(text, "gpucheck_findings")[(("verdict", "skip"),)] == 1
    assert values(text, "gpucheck_status") == {(): 2}


def test_measurements_are_in_base_units():
    text = to_prometheus(REPORTS["sick"])
    second = REPORTS["sick"].topology.gpus[1].pci_bus_id
    names = ("gpucheck_p2p_bandwidth_bytes_per_second", "gpucheck_p2p_bandwidth_ratio", "gpucheck_p2p_latency_seconds")
    (pair, *_) = (
        labels
        for labels in values(text, names[0])
        if {("gpu", "0"), ("peer", second), ("peer_gpu", "1"), ("path", "NV18")} <= set(labels)
    )

    assert values(text, "gpucheck_p2p_bandwidth_bytes_per_second")[pair] == 190e9
    assert values(text, "gpucheck_p2p_bandwidth_ratio")[pair] == 0.497
    assert values(text, "gpucheck_p2p_latency_seconds")[pair] == pytest.approx(2.2e-6)
    assert values(text, "gpucheck_p2p_verified_bytes_total") == {(): 1 << 30}
    assert values(text, "gpucheck_training_samples_per_second") == {(("check", "smoke-ddp"),): 1810}
    assert values(text, "gpucheck_last_run_timestamp_seconds") == {(): 1795276800}


def test_nvlinks_and_narrowed_links_are_told():
    hgx = to_prometheus(REPORTS["healthy"])
    lanes = values(to_prometheus(REPORTS["sick"]), "gpucheck_pcie_link_lanes")
    able = values(to_prometheus(REPORTS["sick"]), "gpucheck_pcie_link_max_lanes")

    assert set(values(hgx, "gpucheck_nvlink_active_links").values()) == {18}
    assert [(lanes[link], able[link]) for link in lanes if lanes[link] != able[link]] == [(8, 16)] * 2


# As dcgm-exporter prints it: its labels and their form, https://github.com/NVIDIA/dcgm-exporter.
DCGM = (
    'DCGM_FI_DEV_GPU_TEMP{gpu="2",UUID="GPU-2",pci_bus_id="00000000:4C:00.0",device="nvidia2",'
    'modelName="NVIDIA H100 80GB HBM3",Hostname="node07"} 31\n'
)


@pytest.mark.parametrize("label", ["gpu", "UUID", "pci_bus_id", "Hostname"])
def test_every_label_of_a_gpu_joins_with_dcgm_exporter(label):
    about = finding("xid", "gpu:0000:4c:00.0", gpu_index=2, gpu_uuid="GPU-2", action="reset-gpu", owner="node")
    ours = samples(to_prometheus(report(about, host="node07")))
    (theirs,) = samples(DCGM)

    for name in ("gpucheck_check_status", "gpucheck_finding_status"):
        (one,) = (sample for sample in ours if sample.name == name)
        assert one.labels[label] == theirs.labels[label]


def test_what_is_wrong_has_its_cause_and_action():
    text = to_prometheus(report(finding(action="reset-gpu", owner="node"), passed(), skipped()))
    (labels,) = values(text, "gpucheck_finding_status")

    wanted = {"check": "nvlink", "cause": "nvlink-down", "action": "reset-gpu", "owner": "node"}
    assert dict(labels) | wanted == dict(labels)


def test_compute_training_collectives_and_votes_are_families():
    result = {"operation": "all_reduce", "size_bytes": 2**30, "variant": "as is", "busbw_gb_s": 400.0}
    collectives = {"backend": "nccl", "ranks": 8, "results": [result]}
    rate = {"steps_per_s": 120.0}
    digests = ["e" * 64] + ["d" * 64] * 7
    hosts = [measured() | trained(digest, performance=rate) | {"collectives": collectives} for digest in digests]
    found = families(fleet_to_prometheus(compared(*hosts)))

    assert len(found["gpucheck_host_compute_gemm_bf16_tflops"].samples) == 8
    assert len(found["gpucheck_host_smoke_ddp_steps_per_s"].samples) == 8
    assert len(found["gpucheck_host_collectives_busbw_bytes_per_second"].samples) == 8
    equal = {
        s.labels["operation"].partition(" ")[0]: s.value for s in found["gpucheck_fleet_equal_results_ratio"].samples
    }
    assert (equal["matrix-bf16"], equal["losses"]) == (1.0, 7 / 8)


@pytest.mark.parametrize("second", ["same help", "another"])
def test_of_two_families_or_samples_of_one_name_the_first_stands(second):
    text = write(
        [Family("gpucheck_x", "same help", [({}, 1), ({}, 3)]), Family("gpucheck_x", second, [({"a": "b"}, 2)])]
    )

    assert text == "# HELP gpucheck_x same help\n# TYPE gpucheck_x gauge\ngpucheck_x 1\n"
