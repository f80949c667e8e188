"""Copies between a GPU and its Grace CPU are compared with NVLink-C2C, not with PCIe."""

import pytest

from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.model import Verdict

GB200 = "gpus: {{count: 4, model: NVIDIA GB200}}\nmeasured: {{host_device: [{{gpu: 0, h2d_gb_s: {}, d2h_gb_s: {}}}]}}"
GH200 = GB200.replace("count: 4, model: NVIDIA GB200", "count: 1, model: NVIDIA GH200 480GB")
TWO_NODES = "\nhost: {sockets: 2}"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (GB200.format(201, 193), Verdict.PASS),  # Azure/AI-benchmarking-guide, ND GB200 v6
        (GH200.format(346, 295), Verdict.PASS),  # NVIDIA/nvbandwidth#23
        (GB200.format(201, 150), Verdict.WARN),
        (GB200.format(60, 60), Verdict.FAIL),
        (GH200.format(60, 60), Verdict.FAIL),
        (GH200.format(346, 110), Verdict.FAIL),
        # The memory may be that of the other Grace CPU, and how fast copies from there are is not known.
        (GB200.format(160, 150) + TWO_NODES, Verdict.UNKNOWN),
    ],
)
def test_host_copies_are_judged_by_nvlink_c2c(text, verdict):
    found = [finding for finding in diagnose(read(text)) if finding.check == "host-copies"]

    assert [finding.verdict for finding in found] == [verdict]
    assert str(found[0].values["basis"]).startswith("NVLink-C2C")
    assert found[0].cause is None, "no cause of PCIe explains it"
