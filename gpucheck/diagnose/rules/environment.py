"""Environment variables that change what NCCL or CUDA does: leftovers of earlier tuning."""

from collections.abc import Iterator

from gpucheck.diagnose._case import Case, Claim
from gpucheck.diagnose.machine import Machine
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

OFF = {"", "0", "false", "no", "off"}
# Variable -> what it does. Those that only matter when switched on are in SWITCHES, when switched off in ENABLES.
SWITCHES = {
    "NCCL_P2P_DISABLE": "NCCL uses no peer-to-peer at all, neither PCIe nor NVLink (plain copies still do)",
    "NCCL_SHM_DISABLE": "NCCL uses no shared memory: pairs without P2P talk over the network stack",
    "NCCL_IB_DISABLE": "NCCL uses no InfiniBand or RoCE between hosts",
    "CUDA_LAUNCH_BLOCKING": "every kernel launch waits, so nothing overlaps",
}
ENABLES = {
    "NCCL_NVLS_ENABLE": "NVSwitch does not reduce, so all_reduce runs as a ring",
    "NCCL_CUMEM_ENABLE": "NCCL maps peers the older way",
}
SETTINGS = {
    "NCCL_P2P_LEVEL": "limits up to which path class NCCL uses peer-to-peer",
    "NCCL_TOPO_FILE": "NCCL believes this file instead of the machine",
    "NCCL_GRAPH_FILE": "NCCL believes this search result instead of its own",
    "NCCL_ALGO": "forces the algorithm of every collective",
    "NCCL_PROTO": "forces the protocol of every collective",
    "NCCL_MAX_NCHANNELS": "limits the number of channels",
    "NCCL_MAX_CTAS": "limits the number of blocks",
    "NCCL_NTHREADS": "sets the threads of a block",
    "NCCL_BUFFSIZE": "sets the buffer of a channel",
    "NCCL_SOCKET_IFNAME": "limits the network interfaces of the bootstrap",
    "NCCL_NET_GDR_LEVEL": "limits up to which class GPU memory and network cards talk directly",
    "CUDA_VISIBLE_DEVICES": "hides GPUs and renumbers the rest",
    "CUDA_DEVICE_MAX_CONNECTIONS": "limits the work queues of a GPU",
    "LD_PRELOAD": "loads a library into every program",
}
NO_P2P_LEVEL = {"LOC", "0"}
# Only the removal of these paths is visible in the numbers of one host.
SLOWING = {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE"}
SLOWING |= {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_BUFFSIZE", "NCCL_NTHREADS"}


def rule(case: Case) -> Iterator[Finding]:
    """Every active variable that changes paths or counts, the ones that forbid a path first."""
    m = case.machine
    for name, effect in _in_force(m):
        value = m.seen.environment[name]
        explains = name in SLOWING and bool(m.measured.collectives)
        yield Claim(
            "environment",
            Verdict.WARN,
            "leftover-environment",
            "likely" if name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") else "possible",
        ).finding(
            seen=f"{name}={value[:80]}",
            wanted="not set",
            why=effect + (", which the collectives here were measured with" if explains else ""),
            fix=f"unset {name}; look in /etc/nccl.conf and ~/.nccl.conf too",
            evidence=(f"{name}={value[:200]}",),
        )


def slows_collectives(m: Machine) -> bool:
    """Whether an active variable removes a path, an algorithm or channels."""
    return any(name in SLOWING for name, _ in _in_force(m))


def _in_force(m: Machine) -> Iterator[tuple[str, str]]:
    for name, value in sorted(m.seen.environment.items()):
        word = value.strip().lower()
        if name in SWITCHES and word not in OFF:
            # Without peer-to-peer on any pair this one has no effect.
            if name != "NCCL_P2P_DISABLE" or not m.pairs or any(m.access[pair] is not False for pair in m.pairs):
                yield name, SWITCHES[name]
        elif name in ENABLES and word in OFF and word:
            yield name, ENABLES[name]
        elif name == "CUDA_VISIBLE_DEVICES":
            if not _shows_all(word, m.count):
                yield name, SETTINGS[name]
        elif name == "NCCL_P2P_LEVEL" and word == "sys":
            continue  # allows every path
        elif name in SETTINGS and word:
            effect = "NCCL uses no peer-to-peer" if name == "NCCL_P2P_LEVEL" and word.upper() in NO_P2P_LEVEL else ""
            yield name, effect or SETTINGS[name]


def _shows_all(value: str, count: int) -> bool:
    """0,1,...,n-1 hides nothing and renumbers nothing."""
    return value.replace(" ", "") == ",".join(str(i) for i in range(count)) and count > 0
