"""Metrics that node_exporter takes: parsed by Prometheus' own library and, where it is installed, by promtool."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpucheck.model import Verdict
from gpucheck.render.machine.prometheus import fleet_to_prometheus, to_prometheus
from tests.fleet.reports import merged, steady
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


@pytest.mark.parametrize("name", REPORTS)
def test_the_collectors_rules_hold(name):
    """No timestamps, no duplicates, no value that is no number, a newline at the end; families with help, once each."""
    text = to_prometheus(REPORTS[name])
    found = samples(text)
    families = list(text_string_to_metric_families(text))

    assert all(family.documentation and family.name.startswith("gpucheck_") for family in families)
    assert len({family.name for family in families}) == len(families)

    assert found
    assert all(sample.timestamp is None for sample in found)
    assert len({(s.name, tuple(sorted(s.labels.items()))) for s in found}) == len(found)
    assert all(sample.value == sample.value for sample in found)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


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
