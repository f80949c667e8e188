import pytest

from gpucheck.model import metric_title


@pytest.mark.parametrize(
    ("key", "title"),
    [
        ("p2p.unidirectional_gb_s[NV18]", "p2p unidirectional [NV18] (GB/s)"),
        ("finding.bar1.mib", "bar1 (MiB)"),
        ("finding.clock-limit.mhz", "clock-limit (MHz)"),
        ("finding.processes.processes", "processes"),
        ("finding.nvlink.links", "nvlink (links)"),
        ("smoke-ddp.performance.samples_per_s", "smoke-ddp performance samples (per s)"),
        ("p2p.latency_us[PIX]", "p2p latency [PIX] (us)"),
        ("odd", "odd"),
    ],
)
def test_a_metric_is_titled_with_its_unit(key, title):
    assert metric_title(key) == title
