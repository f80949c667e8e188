"""The collector drops a whole file for one double: checked with the reader of Prometheus itself."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpucheck.render.machine.prometheus import Family, write
from gpucheck.render.machine.prometheus import fleet_to_prometheus as to_prometheus
from tests.fleet.test_digests import compared, measured, trained


def families(text):
    """By name; a name or a series that stands twice fails."""
    names = re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)
    helps = re.findall(r"^# HELP (\S+) ", text, re.MULTILINE)
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert sorted(names) == sorted(set(names)) == sorted(helps)
    assert sorted(series) == sorted(set(series))
    found = {family.name: family for family in text_string_to_metric_families(text)}
    assert sorted(found) == sorted(names)
    return found


def test_compute_training_collectives_and_votes_are_families():
    result = {"operation": "all_reduce", "size_bytes": 2**30, "variant": "as is", "busbw_gb_s": 400.0}
    collectives = {"backend": "nccl", "ranks": 8, "results": [result]}
    rate = {"steps_per_s": 120.0}
    digests = ["e" * 64] + ["d" * 64] * 7
    hosts = [measured() | trained(digest, performance=rate) | {"collectives": collectives} for digest in digests]
    found = families(to_prometheus(compared(*hosts)))

    assert len(found["gpucheck_host_compute_gemm_bf16_tflops"].samples) == 8
    assert len(found["gpucheck_host_smoke_ddp_steps_per_s"].samples) == 8
    assert len(found["gpucheck_host_collectives_busbw_bytes_per_second"].samples) == 8
    equal = {
        s.labels["operation"].partition(" ")[0]: s.value for s in found["gpucheck_fleet_equal_results_ratio"].samples
    }
    assert (equal["matrix-bf16"], equal["losses"]) == (1.0, 7 / 8)


@pytest.mark.parametrize("second", ["same help", "another"])
def test_of_two_families_of_one_name_the_first_stands(second):
    text = write([Family("gpucheck_x", "same help", [({}, 1)]), Family("gpucheck_x", second, [({"a": "b"}, 2)])])

    assert text == "# HELP gpucheck_x same help\n# TYPE gpucheck_x gauge\ngpucheck_x 1\n"
