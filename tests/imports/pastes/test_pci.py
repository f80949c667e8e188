"""lspci, DCGM, fabric manager, module errors and RDMA ports: what the corpus does not say."""

import json
import re

import pytest

from gpucheck.imports.pci.lspci import nodes
from gpucheck.model import Verdict
from tests.imports.pastes import reading
from tests.imports.pastes.reading import RAW, diagnosed, read

H100 = RAW["lspci-h100-vvv-two-switches"]
A100 = "3D controller: NVIDIA Corporation GA100 [A100 PCIe 40GB]"
CLEAR = "ACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
REDIRECT = "ACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-"
TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t{0}\t0-15\nGPU1\t{0}\t X \t0-15\n"


def keys(text):
    return set(reading.keys(text))


def accused(text):
    return reading.accused(diagnosed(text))


def test_root_ports_that_redirect_above_single_gpus_are_no_fault():
    blocks = H100.split("\n\n")
    redirected = [block.replace(CLEAR, REDIRECT) if block[:7] in ("15:01.0", "37:01.0") else block for block in blocks]
    found = diagnosed("\n\n".join(redirected))
    assert "acs-redirect" not in {finding.cause for finding in found.findings}


def test_switch_ports_that_redirect_between_near_gpus_are_named():
    blocks = [block.replace(CLEAR, REDIRECT) if block.startswith("17:") else block for block in H100.split("\n\n")]
    text = "\n\n".join(blocks)
    assert keys(text) == {"lspci.acs-network"}
    assert "acs-redirect" not in accused(text.partition("1a:00.0")[0] + text[text.index("37:01.0") :])
    near = text.replace(
        "1a:00.0 Ethernet controller: Mellanox Technologies", "1a:00.0 3D controller: NVIDIA Corporation"
    )
    found = diagnosed(near).observations.host.acs
    assert {row.bus_id for row in found if row.control & 4} == {"0000:17:01.0", "0000:17:02.0"}


def test_acs_lines_without_names():
    clear = "\n".join(["\t\t" + CLEAR] * 3)
    assert diagnosed(clear).observations.host.acs_redirect is False
    mixed = clear + "\n\t\t" + REDIRECT
    found = diagnosed(mixed)
    assert (found.observations.host.acs_redirect, found.verdict) == (None, Verdict.UNKNOWN)
    assert "1 of 4 ACSCtl lines" in str(found.findings)


def test_acs_lines_after_a_list_belong_to_no_device_of_it():
    text = f"3b:00.0 {A100} (rev a1)\n$ sudo lspci -vvv | grep ACSCtl\n\t\t{REDIRECT}"
    assert all(not part.facts.observed.host.acs for part in read(text).parts)


def test_one_device_of_two_and_a_matrix_are_one_machine():
    one = f"$ sudo lspci -vvv -s 4f:00.0\n4f:00.0 {A100} (rev a1)\n"
    one += "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n"
    one += "\t\tLnkSta:\tSpeed 16GT/s (ok), Width x8 (downgraded)\n"
    assert diagnosed(TOPO.format("SYS") + "\n" + one).gpus == 2
    both = one + one.replace("4f:", "cc:")
    found = diagnosed(TOPO.format("SYS") + "\n" + both)
    assert [gpu.pcie.width for gpu in found.observations.gpus] == [8, 8]


def test_an_idle_link_at_the_first_generation_is_no_fault():
    text = (
        "01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)\n"
        "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1\n"
        "\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16 (ok)\n"
    )
    found = diagnosed(text)
    pcie = found.observations.gpus[0].pcie
    assert (pcie.gen, pcie.width, pcie.max_gen, pcie.max_width, pcie.read) == (1, 16, 4, 16, None)
    assert not accused(text)


def test_what_the_slot_cannot_do_is_not_expected():
    text = (
        "00:01.1 PCI bridge: Intel Corporation Device 352a (prog-if 00 [Normal decode])\n"
        "\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0\n"
        "\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00\n"
        "\t\tLnkCap:\tPort #1, Speed 8GT/s, Width x8, ASPM not supported\n\n"
        f"01:00.0 {A100} (rev a1)\n"
        "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n"
        "\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)\n"
    )
    gpu = diagnosed(text).observations.gpus[0]
    assert (gpu.pcie.max_gen, gpu.pcie.max_width) == (3, 8)
    assert [(port.bus_id, port.kind) for port in gpu.path] == [("0000:00:01.1", "root-port")]


def test_a_gpu_that_is_gone():
    text = f"3b:00.0 {A100} (rev ff) (prog-if ff)\n"
    assert keys(text + "\t!!! Unknown header type 7f\n") == {"lspci.gpu-gone"}
    assert accused(text) == {"gpu-lost"}


def test_paths_of_a_tree():
    tree = (
        "-+-[0000:60]-+-00.0\n"
        " |           \\-03.1-[61-67]----00.0-[62-67]--+-02.0-[63]----00.0\n"
        " |                                           \\-04.0-[64]--+-00.0\n"
        " |                                                        \\-00.1\n"
        " \\-[0000:00]-+-00.0\n"
        "             \\-01.0-[01]--\n"
    )
    found = nodes(tree.split("\n"))
    above = ("0000:60:03.1", "0000:61:00.0")
    assert found["0000:63:00.0"].path == (*above, "0000:62:02.0")
    assert found["0000:64:00.1"].path == (*above, "0000:62:04.0")
    assert found["0000:00:01.0"].path == ()


def test_links_of_one_gpu_that_are_down_one_by_one():
    text = RAW["dcgmi-diag-nvlink-without-bridge"]
    assert keys(text) == {"dcgm.links-down"}
    assert accused(text.replace("link 0 is", "link 7 is")) == {"nvlink-down"}


def test_a_dcgm_test_that_fails_for_no_one_gpu_says_so_in_its_summary():
    """Form of DCGM 4.2.3: the results of entities, and a summary with the errors of none of them."""
    warning = {"error_id": 29, "warning": "Persistence mode for GPU 0 is disabled."}
    test = {"name": "software", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}]}
    test["test_summary"] = {"status": "Fail", "warnings": [warning]}
    text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [test]}]}})

    assert keys(text) == {"dcgm.persistence"}
    assert keys(text.replace("Persistence mode", "New words")) == {"dcgm.failed"}


def test_dcgm_health_with_a_failure():
    text = (
        "| Health Monitor Report                                                      |\n"
        "+===========================+================================================+\n"
        "| Overall Health            | Warning                                        |\n"
        "| GPU                       |                                                |\n"
        "| -> 0                      | Warning                                        |\n"
        "|    -> Errors              |                                                |\n"
        "|       -> PCIe system      | Warning                                        |\n"
        "|                           | Detected more than 8 PCIe replays per minute   |\n"
        "|                           | for GPU 0 : 13                                 |\n"
    )
    assert keys(text) == {"dcgm.pcie"}
    assert accused(text) == {"pcie-errors"}


def port_codes(text):
    return [finding.code for finding in diagnosed(text).findings if finding.check == "nic-ports"]


DEVINFO = (
    "hca_id:\tmlx5_{n}\n\tsys_image_guid:\t\t\t946d:ae03:008b:df5{n}\n\tvendor_part_id:\t\t\t4129\n\t\tport:\t1\n"
    "\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tport_lid:\t\t{lid}\n\t\t\tlink_layer:\t\tInfiniBand\n"
    "\t\t\tbad_pkey_cntr:\t\t0x0\n\t\t\tinit_type_reply:\t0\n"
    "\t\t\tactive_width:\t\t{width}\n\t\t\tactive_speed:\t\t{speed}\n\t\t\tphys_state:\t\tLINK_UP (5)\n"
)
NDR = {"lid": 5, "width": "4X (2)", "speed": "100.0 Gbps (128)"}


@pytest.mark.parametrize(
    ("every", "last", "codes"),
    [
        (NDR, {}, [None]),
        (NDR, {"width": "1X (1)"}, ["network.port-slower"]),
        (NDR, {"speed": "25.0 Gbps (32)"}, ["network.port-slower"]),
        (NDR | {"width": "1X (1)", "speed": "25.0 Gbps (32)"}, {}, ["network.port-few-lanes"] * 4),
        (NDR | {"speed": "invalid speed (256)"}, {}, [None]),
    ],
)
def test_width_and_speed_of_ibv_devinfo_are_the_rate(every, last, codes):
    text = "".join(DEVINFO.format(n=n, **every | (last if n == 3 else {})) for n in range(4))

    assert port_codes(text) == codes


@pytest.mark.parametrize(("lid", "verdict"), [("0", Verdict.UNKNOWN), ("65535", Verdict.UNKNOWN), ("7", Verdict.PASS)])
def test_a_port_without_lid_is_no_pass(lid, verdict):
    """EFA has none: its link layer is another, or its GUIDs are zeros.

    Format of rdma link: openshift/sriov-network-operator#635.
    """
    link = "link mlx5_{}/1 subnet_prefix fe80:0000 lid {} sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n"
    if lid != "0":  # which rdma link does not print
        assert diagnosed(link.format(0, 3) + link.format(2, lid)).verdict is verdict
    text = "".join(DEVINFO.format(n=n, **NDR | {"lid": lid}) for n in range(2))

    assert diagnosed(text).verdict is verdict
    assert diagnosed(text.replace("InfiniBand", "Ethernet")).verdict is Verdict.PASS
    assert diagnosed(re.sub("946d:.*", "0000:0000:0000:0000", text)).verdict is Verdict.PASS


# mlxlink -m of an optical module, GitHub file 53278399928, and of a copper cable, GitHub file 58145501009.
MLXLINK = """Operational Info
----------------
State                              : {state}
Physical state                     : LinkUp
Speed                              : {speed}
Width                              : {width}

Module Info
-----------
Temperature [C]                    : 54 [-5..75]
Rx Power Current [dBm]             : {rx}
Identifier                         : OSFP
"""


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, set()),
        ({"rx": "1.886,1.989,2.281,-12.1 [-10.41..6]"}, {"nic-link.module-outside"}),
        # Half of the lanes are in use; light of a peer that is off; passive copper; what is not reported.
        ({"rx": "1.886,1.989,-40,-40 [-10.41..6]", "width": "2x"}, set()),
        ({"rx": "-40,-40,-40,-40 [-10.41..6]", "state": "Polling"}, set()),
        ({"rx": "0,0,0,0 [0..0]"}, set()),
        ({"rx": "N/A"}, set()),
        ({"speed": "IB-SDR"}, {"nic-link.few-lanes"}),
        ({"speed": "IB-EDR", "width": "1x"}, {"nic-link.few-lanes"}),
        ({"speed": "IB-NDR", "width": "1x"}, set()),
        ({"speed": "25G", "width": "1x"}, set()),
    ],
)
def test_a_link_as_mlxlink_prints_it(changes, found):
    usual = {"state": "Active", "speed": "IB-NDR", "width": "4x", "rx": "1.886,1.989,2.281,1.976 [-10.41..6]"}

    assert keys(MLXLINK.format(**usual | changes)) == found


@pytest.mark.parametrize(
    ("rate", "state", "layer", "found"),
    [
        ("25 Gb/sec (1X EDR)", "4: ACTIVE", "InfiniBand", {"nic-link.few-lanes"}),
        ("25 Gb/sec (1X EDR)", "4: ACTIVE", "Ethernet", set()),
        ("100 Gb/sec (1X NDR)", "4: ACTIVE", "InfiniBand", set()),
        ("20 Gb/sec (4X DDR)", "4: ACTIVE", "InfiniBand", set()),
        ("2.5 Gb/sec (1X)", "1: DOWN", "InfiniBand", set()),
    ],
)
def test_one_lane_of_infiniband_as_ibstatus_prints_it(rate, state, layer, found):
    """Format: drivers/infiniband/core/sysfs.c of Linux. 25 Gigabit Ethernet has one lane."""
    text = f"Infiniband device 'mlx5_0' port 1 status:\n\tbase lid:\t 0x5\n\tstate:\t\t {state}\n\trate:\t\t {rate}\n"

    assert keys(f"{text}\tlink_layer:\t {layer}\n") == found


def test_one_port_of_eight_is_slower():
    ports = "".join(
        f"CA 'mlx5_{i}'\n\tCA type: MT4129\n\tSystem image GUID: 0x58a2e103001b25{i:02}\n\tPort 1:\n\t\tState: Active\n"
        f"\t\tPhysical state: LinkUp\n\t\tRate: {200 if i == 3 else 400}\n\t\tLink layer: InfiniBand\n"
        for i in range(8)
    )
    assert port_codes(ports) == ["network.port-slower"]
    assert port_codes(ports.replace("Rate: 200", "Rate: 400")) == [None]
    down = ports.replace(
        "\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 200", "\t\tState: Down\n\t\tRate: 40"
    )
    assert port_codes(down) == ["network.port-odd"]
    assert keys(ports + down) == {"rdma-port.changed"}
    assert all(finding.verdict is not Verdict.FAIL for finding in diagnosed(down).findings)
