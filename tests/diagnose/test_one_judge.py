"""What ``gpucheck bandwidth`` says about links is what ``gpucheck diagnose`` says of its numbers."""

import json

import pytest
from click.testing import CliRunner

from gpucheck.cli.diagnose import COMMAND as DIAGNOSE
from gpucheck.diagnose.document import read
from tests.forked import gpucheck
from tests.shared import END_S, sampled

pytestmark = pytest.mark.slow

EVERYWHERE = (
    "",
    "copy-noise:percent=5",
    "p2p-slow:pair=0-1,percent=40",
    "p2p-slow-direction:pair=1-0,percent=40",
    "p2p-half-duplex:pair=0-1",
    "p2p-corrupt:pair=0-1,kind=zeros",
    "p2p-corrupt:pair=0-1,kind=bit-flip",
    "p2p-error:pair=0-1",
    "p2p-stuck:pair=0-1",
    "pcie-gen:gpu=0,gen=1",
    "pcie-width:gpu=0,width=4",
    "throttle-thermal:gpu=0",
    "replay-rising:gpu=0",
)
ON_PCIE = ("p2p-status:pair=0-1", "iommu-translating")
ON_NVLINK = ("nvlink-down:gpu=0,link=0", "nvlink-errors:gpu=0")
MACHINES = {
    "p100-pcie-x2": (*EVERYWHERE, *ON_PCIE, "acs-redirect", "uplink-gen:gen=1,gpu=0"),
    "l40s-x4": (*EVERYWHERE, *ON_PCIE, "rebar-off"),
    "hgx-h100-x8": (*EVERYWHERE, *ON_NVLINK),
    "a100-pcie-x2-nvlink": (*EVERYWHERE, *ON_NVLINK),
    "rtx4090-x2": (*EVERYWHERE, *ON_PCIE, "rebar-off"),
}
# What the measuring room says itself: it could not look.
GAPS = {
    ("p2p-copies", "unknown"),
    ("p2p-copies", "skip"),
    ("p2p-integrity", "unknown"),
    ("links-under-load", "unknown"),
}


def key(finding):
    return finding["check"], finding["verdict"], finding["cause"], finding["subject"]


CASES = [(profile, fault) for profile, faults in MACHINES.items() for fault in faults]


def in_sample(_, case):
    """Every second fault of EVERYWHERE on one of the machines with two GPUs; all are asked in make test-more."""
    profile, fault = case
    small = [name for name in MACHINES if "x2" in name]
    return profile in small and MACHINES[profile].index(fault) % (2 * len(small)) == 2 * small.index(profile)


@pytest.mark.parametrize(("profile", "fault"), sampled(CASES, in_sample))
def test_both_commands_find_the_same(profile, fault, tmp_path):
    words = ["--simulate", profile, *(["--fault", fault] if fault else []), "--level", "standard"]
    done = gpucheck("bandwidth", *words, "--format", "json", timeout_s=END_S)
    assert done.returncode in (0, 1, 2, 3), done.stderr
    report = json.loads(done.stdout)
    own = [finding for finding in report["findings"] if (finding["check"], finding["verdict"]) not in GAPS]
    files = {"report": report, "observations": report["observations"]}

    for name, content in files.items():
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(content))
        answer = CliRunner().invoke(DIAGNOSE, ["--observations", str(file), "--format", "json"], standalone_mode=False)
        again = json.loads(answer.stdout)["findings"]
        assert [key(finding) for finding in again if (finding["check"], finding["verdict"]) not in GAPS] == [
            key(finding) for finding in own
        ]


def test_what_is_not_known_is_left_out_of_the_json():
    done = gpucheck("bandwidth", "--simulate", "p100-pcie-x2", "--level", "quick", "--format", "json")
    seen = json.loads(done.stdout)["observations"]

    assert set(seen) == {"gpus", "matrix", "p2p_access", "p2p_status", "host", "uplinks", "measured"} & set(seen)
    assert "staged_bidir_gb_s" not in seen["measured"]
    assert "p2p_latency_us" not in seen["measured"], "a quick run takes no latencies"
    assert read(done.stdout) == read(json.dumps(seen))
