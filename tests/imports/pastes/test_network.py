"""What users paste about network cards: each text has one meaning, and what is by design accuses nobody."""

import pytest

from gpucheck.model import Verdict
from tests.imports.pastes.reading import accused, diagnosed, keys, read

# What perftest prints in two lines, and its heading without a row; single lines are in tests/data/words.tsv.
PERFTEST = {
    "RDMA CM event error:\nEvent: RDMA_CM_EVENT_REJECTED; error: -111.": ("perftest.cm", None),
    "RDMA CM event error:\nEvent: RDMA_CM_EVENT_ADDR_ERROR; error: -19.": ("perftest.cm-address", "nic-address"),
    "Port number 1 state is Down\nCouldn't get context for the device": ("perftest.port", "nic-down"),
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]": ("perftest.no-row", None),
}


@pytest.mark.parametrize(("text", "meaning"), PERFTEST.items(), ids=PERFTEST)
def test_lines_have_their_meaning_and_cause(text, meaning):
    key, cause = meaning

    assert keys(text) == [key]
    named = {one.cause for one in diagnosed(text).findings if one.check == key.partition(".")[0]}
    assert named == {cause} or (cause is None and not named)


def test_a_process_that_sees_no_device_does_not_accuse_the_port():
    found = diagnosed("Did not detect devices\nIf device exists, check if driver is up\n")

    assert found.verdict is Verdict.UNKNOWN
    assert accused(found) == set()
    assert not found.unread


def ethtool(*values, name="rx_symbol_err_phy"):
    return "".join(
        f"$ ethtool -S eth4\nNIC statistics:\n     rx_packets: 5\n     {name}: {value}\n" for value in values
    )


@pytest.mark.parametrize(
    ("name", "values", "verdict", "cause"),
    [
        ("rx_symbol_err_phy", (0, 0, 0), Verdict.PASS, None),
        ("rx_symbol_err_phy", (7,), Verdict.UNKNOWN, None),
        ("rx_symbol_err_phy", (3, 9), Verdict.UNKNOWN, "nic-errors"),
        ("rx_symbol_err_phy", (3, 9, 11), Verdict.WARN, "nic-errors"),
        ("rx_symbol_err_phy", (9, 3), Verdict.UNKNOWN, None),
        ("rx_discards_phy", (1, 2, 3), Verdict.WARN, "nic-congestion"),
        ("link_down_events_phy", (1, 2, 3), Verdict.WARN, "nic-flap"),
        *((name, (1, 2, 3), Verdict.UNKNOWN, None) for name in (
            "rx_corrected_bits_phy", "rx_prio3_pause", "np_cnp_sent", "rnr_nak_retry_err", "outbound_pci_stalled_rd"
        )),
    ],
)  # fmt: skip
def test_only_what_rises_in_several_intervals_is_accused(name, values, verdict, cause):
    found = diagnosed(ethtool(*values, name=name))
    (finding,) = found.findings

    assert (finding.verdict, finding.cause) == (verdict, cause)
    assert not found.unread
    assert finding.subject == ("nic:eth4" if cause else "host")


def test_counters_of_several_hosts_are_not_compared():
    hosts = "".join(ethtool(value).replace("$", f"root@node{value}:~#") for value in (3, 9, 11))
    found = diagnosed(hosts)

    assert [one.machine for one in found.machines] == ["node3", "node9", "node11"]
    assert accused(found) == set()
    assert found.verdict is Verdict.UNKNOWN


def test_outputs_without_the_name_of_a_port_are_not_compared():
    (finding,) = diagnosed("\n".join(ethtool(3, 9, 11).split("$ ethtool -S eth4\n"))).findings

    assert (finding.verdict, finding.cause) == (Verdict.UNKNOWN, None)


def test_two_folders_of_one_port_are_read_as_one():
    folder = "/sys/class/infiniband/mlx5_0/ports/1"
    dump = (
        "{0}/counters/symbol_error:{1}\n{0}/../mlx5_1/ports/1/counters/symbol_error:0\n{0}/hw_counters/np_cnp_sent:8\n"
    )
    found = diagnosed("".join(dump.format(folder, value) for value in (1, 2, 4)))

    assert {one.cause for one in found.findings} == {"nic-errors"}
    assert found.findings[0].evidence == ("mlx5_0/1: symbol_error 1 -> 2 -> 4",)


def test_a_counter_at_its_largest_value_says_so():
    text = "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:255\n" * 3
    (finding,) = diagnosed(text).findings

    assert finding.verdict is Verdict.UNKNOWN
    assert "largest value" in finding.evidence[0]


@pytest.mark.parametrize(
    ("text", "counters"),
    {
        "  GUID 0x1 port 3: [SymbolErrorCounter == 5] [PortXmitWait == 9 (9.000)]": {
            "symbol_error": 5,
            "port_xmit_wait": 9,
        },
        "# Port counters: Lid 7 port 1 (CapMask: 0x5300)\nLinkErrorRecoveryCounter:........2\nVL15Dropped:.....0": {
            "link_error_recovery": 2,
            "vl15_dropped": 0,
        },
        "link mlx5_0/1\n    rx_write_requests 4\n    local_ack_timeout_err 2": {
            "rx_write_requests": 4,
            "local_ack_timeout_err": 2,
        },
        "/sys/class/net/eth0/statistics/rx_crc_errors:8": {"rx_crc_errors": 8},
        "2: eth4@if3: <UP> mtu 9000\n    RX:  bytes packets errors\n    90 8 7\n    RX errors: length crc\n     0 6": {
            "rx_bytes": 90,
            "rx_packets": 8,
            "rx_errors": 7,
            "rx_length": 0,
            "rx_crc": 6,
        },
    }.items(),
)  # fmt: skip
def test_each_tool_has_its_form_and_linux_its_names(text, counters):
    (one,) = read(text).parts[0].facts.counters

    assert one.values == counters


SHOW_GIDS = """DEV     PORT    INDEX   GID                                     IPv4            VER     DEV
---     ----    -----   ---                                     ------------    ---     ---
mlx5_0  1       0       fe80:0000:0000:0000:0ac0:ebff:feda:1cfb                 v1      eth0
mlx5_0  1       1       fe80:0000:0000:0000:0ac0:ebff:feda:1cfb                 v2      eth0
mlx5_0  1       2       0000:0000:0000:0000:0000:ffff:c800:d106 200.0.209.6     v1      eth0
mlx5_0  1       3       0000:0000:0000:0000:0000:ffff:c800:d106 200.0.209.6     v2      eth0
mlx5_1  1       0       fe80:0000:0000:0000:0ac0:ebff:feda:1cfc                 v1      eth1
n_gids_found=5
"""


def test_gid_tables_name_the_index_that_is_routed_and_ports_may_differ():
    found = diagnosed(SHOW_GIDS)

    assert not found.unread
    assert found.looked_at == ("2 GID tables: RoCE v2 of a routed address at index 3",)
    assert {one.cause for one in found.findings} == {None}
    two = diagnosed(SHOW_GIDS, SHOW_GIDS.replace("mlx5_0  1       3", "mlx5_0  1       5"))
    assert (two.verdict, [one.cause for one in two.findings]) == (Verdict.UNKNOWN, ["nic-address"])


def module(now, alarm):
    name = "Module temperature"
    return f"ethtool -m eth4\n\t{name} : {now} degrees C\n\t{name} high alarm threshold : {alarm} degrees C\n"


@pytest.mark.parametrize(
    ("text", "verdict", "causes"),
    [
        (module(76.5, 75), Verdict.WARN, {"nic-hot"}),
        (module(74.5, 75), Verdict.UNKNOWN, {None}),
        (module(0, 0), Verdict.UNKNOWN, {None}),
        ("mlxlink -d mlx5_0 -m\nOperational Info\nTemperature [C] : 81 [-10..80]\n", Verdict.WARN, {"nic-hot"}),
        ("Settings for eth4:\n\tSpeed: Unknown!\n\tLink detected: no\n", Verdict.UNKNOWN, {None}),
        ("Operational Info\nState : Polling\nRecommendation : Cable is unplugged\n", Verdict.UNKNOWN, {None}),
        (
            "Operational Info\nState : Active\nEffective Physical Errors : 0\nRaw Physical BER : 1E-8\n",
            Verdict.PASS,
            {None},
        ),
        ("pci/0000:2b:00.0:\n  reporter fw_fatal\n    state error error 1 recover 0\n", Verdict.WARN, {"nic-driver"}),
        ("pci/0000:2b:00.0:\n  reporter tx\n    state healthy error 4 recover 4\n", Verdict.UNKNOWN, {None}),
    ],
)
def test_links_and_modules_are_judged_by_their_own_limits(text, verdict, causes):
    found = diagnosed(text)

    assert (found.verdict, {one.cause for one in found.findings}) == (verdict, causes)
    assert not found.unread


@pytest.mark.parametrize(
    ("speed", "width", "rate"),
    [
        ("400000Mb/s", "", 400),
        ("100GbE", "4x", 100),
        ("IB-NDR", "4x", 400),
        ("IB-HDR", "2x", 100),
        ("N/A", "N/A", None),
    ],
)
def test_the_speed_of_each_tool_is_a_rate(speed, width, rate):
    values = f'"State" : "Active",\n "Speed" : "{speed}",\n "Width" : "{width}"\n'
    (device,) = read(f'mlxlink -d mlx5_0 --json\n{{ "Operational Info" : {{\n {values}}}}}').parts[0].facts.rdma

    assert device.ports[0].rate_gbit_s == rate


IBSTAT = "CA '{0}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n"


@pytest.mark.parametrize("lines", [1, 3, 4])
def test_a_card_of_which_the_port_is_cut_off_is_not_left_out(lines):
    """The others are active, and this one is not known to be."""
    second = "\n".join(IBSTAT.format("mlx5_1").split("\n")[:lines])

    assert diagnosed(IBSTAT.format("mlx5_0") + IBSTAT.format("mlx5_1")).verdict is Verdict.PASS
    assert diagnosed(IBSTAT.format("mlx5_0") + second).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("SymbolErrorCounter:..............0\nPortRcvRemotePhysicalErrors:.....0\n", Verdict.PASS),
        ("SymbolErrorCounter:..............0\nPortRcvRemotePhysicalErrors:.....500\n", Verdict.UNKNOWN),
        ("SymbolErrorCounter:..............0\nExcessiveBufferOverrunErrors:....15\n", Verdict.UNKNOWN),
    ],
)
def test_counters_of_errors_elsewhere_are_no_pass(text, verdict):
    """They accuse no link: the damage was on the way, or the policy of a partition dropped packets."""
    found = diagnosed(f"# Port counters: Lid 5 port 1 (CapMask: 0x5300)\nPortSelect:......................1\n{text}")

    assert found.verdict is verdict
    assert all(one.cause is None for one in found.findings)


@pytest.mark.parametrize("name", ["rx_pci_signal_integrity", "module_bad_shorted"])
def test_errors_of_the_module_or_the_slot_are_no_pass(name):
    """Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst of Linux."""
    text = f"$ ethtool -S eth0\nNIC statistics:\n     link_down_events_phy: 0\n     {name}: {{}}\n"

    assert diagnosed(text.format(0)).verdict is Verdict.PASS
    assert diagnosed(text.format(3)).verdict is Verdict.UNKNOWN
