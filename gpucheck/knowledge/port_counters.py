"""Counters of network ports that are evidence of a cause, by their names in Linux and ethtool, and where they stop.

Sources: drivers/infiniband/core/sysfs.c, hw/mlx5/counters.c, hw/bnxt_re/hw_counters.c and sw/rxe of Linux;
Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst; IBTA volume 1, PortCounters.
Not evidence: corrected bits, ECN, CNP, single pauses, waiting, out_of_sequence and rnr_nak_retry_err, which are normal
at work; outbound_pci_stalled_*, percentages of the last second; recoverable_errors of bnxt_re, which are broadcasts.
"""

PRIORITIES = range(8)
# By cause, what explains the others first: a link that trains again counts errors, and damaged packets are sent again.
GROUPS = {
    "nic-flap": frozenset({"link_downed", "link_down_events", "link_down_events_phy"}),
    "nic-errors": frozenset({
        "symbol_error", "symbol_errors", "port_rcv_errors", "local_link_integrity_errors", "link_error_recovery",
        "rx_icrc_encapsulated", "rx_symbol_err", "rx_symbol_err_phy", "rx_pcs_symbol_err", "rx_pcs_symbol_err_phy",
        "rx_crc", "rx_crc_errors", "rx_crc_errors_phy", "rx_in_range_len_errors_phy", "effective_physical_errors",
    }),
    "nic-congestion": frozenset({
        "port_xmit_discards", "rx_discards_phy", "tx_discards_phy", "rx_roce_discards", "tx_pause_storm_error_events",
        "local_ack_timeout_err", "packet_seq_err", "req_transport_retries_exceeded", "roce_slow_restart",
        "max_retry_exceeded", "retry_exceeded_err", "out_of_seq_request", "rcvd_seq_err",
        *(f"rx_prio{n}_{what}" for n in PRIORITIES for what in ("discard", "discards", "buf_discard", "cong_discard")),
    }),
}  # fmt: skip
# Errors of another link on the way, of a policy, of the module or of the PCIe slot: where a tool printed some, its text
# is no evidence of a healthy port.
ELSEWHERE = frozenset({
    "port_rcv_remote_physical_errors", "excessive_buffer_overrun_errors", "port_rcv_constraint_errors",
    "port_xmit_constraint_errors", "rx_errors", "tx_errors", "rx_pci_signal_integrity", "tx_pci_signal_integrity",
    "outbound_pci_buffer_overflow", "module_bus_stuck", "module_high_temp", "module_bad_shorted",
})  # fmt: skip
# Microseconds in which the other end, or this one, had the link paused.
PAUSED = frozenset(
    f"{way}_{of}_pause_duration" for way in ("rx", "tx") for of in ("global", *(f"prio{n}" for n in PRIORITIES))
)
EVIDENCE = PAUSED.union(*GROUPS.values())
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
