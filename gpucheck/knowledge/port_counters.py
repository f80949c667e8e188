"""Counters of network ports that are evidence of a cause, by their names in Linux and ethtool, and where they stop.

Sources: drivers/infiniband/core/sysfs.c, hw/mlx5/counters.c and hw/bnxt_re/hw_counters.c of Linux;
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; IBTA volume 1, PortCounters.
Not evidence: corrected bits, ECN, CNP, single pauses, waiting, out_of_sequence and rnr_nak_retry_err, which are normal
at work; outbound_pci_stalled_*, percentages of the last second; recoverable_errors of bnxt_re, which are broadcasts.
"""

import re

# By cause, what explains the others first: a link that trains again counts errors, and damaged packets are sent again.
GROUPS = {
    "nic-flap": re.compile(r"link_downed|link_down_events(?:_phy)?"),
    "nic-errors": re.compile(
        r"symbol_errors?|port_rcv_errors|local_link_integrity_errors|link_error_recovery|rx_icrc_encapsulated|"
        r"rx_(?:pcs_)?symbol_err(?:_phy)?|rx_crc_errors(?:_phy)?|rx_in_range_len_errors_phy|effective_physical_errors|rx_crc"
    ),
    "nic-congestion": re.compile(
        r"port_xmit_discards|[rt]x_discards_phy|rx_prio\d_(?:buf_|cong_)?discards?|local_ack_timeout_err|packet_seq_err|"
        r"req_transport_retries_exceeded|roce_slow_restart|tx_pause_storm_error_events|max_retry_exceeded|"
        r"retry_exceeded_err|rx_roce_discards"
    ),
}
# Microseconds in which the other end, or this one, had the link paused.
PAUSED = re.compile(r"[rt]x_(?:global|prio\d)_pause_duration")
# The registers of an InfiniBand port stop at their largest value; others of this size start again.
CEILINGS = {
    **dict.fromkeys(("symbol_error", "port_rcv_errors", "port_xmit_discards"), (1 << 16) - 1),
    **dict.fromkeys(("link_error_recovery", "link_downed"), (1 << 8) - 1),
    "local_link_integrity_errors": (1 << 4) - 1,
    "link_down_events_phy": (1 << 32) - 1,
}
# Errors that a link may have: one in as many bits (IBTA). With error correction a healthy link has far fewer.
BITS_PER_ERROR = 1e12
# Of packets that were dropped or sent again: UFM and NVSentinel report from 100 and 200 a second on.
DROPS_PER_S = 100.0
# A sender that is paused for more of the time loses bandwidth.
PAUSED_SHARE = 0.05


def is_evidence(name: str) -> bool:
    return any(names.fullmatch(name) for names in (*GROUPS.values(), PAUSED))
