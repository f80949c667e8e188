"""Environment variables that change what NCCL or CUDA does: leftovers of earlier tuning."""

from collections.abc import Iterator

from gpucheck.checks._case import Case, Claim
from gpucheck.checks._machine import Machine
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

OFF = {"", "0", "false", "no", "off"}
# Variable -> what it does. Those that only matter when switched on are in SWITCHES, when switched off in ENABLES.
SWITCHES = {
    "NCCL_P2P_DISABLE": "collectives.p2p-disabled",
    "NCCL_SHM_DISABLE": "collectives.shm-disabled",
    "NCCL_IB_DISABLE": "collectives.ib-disabled",
    "CUDA_LAUNCH_BLOCKING": "collectives.launches-wait",
}
ENABLES = {"NCCL_NVLS_ENABLE": "collectives.nvls-disabled", "NCCL_CUMEM_ENABLE": "collectives.cumem-disabled"}
SETTINGS = {
    "NCCL_P2P_LEVEL": "collectives.p2p-level-set",
    "NCCL_TOPO_FILE": "collectives.topology-file",
    "NCCL_GRAPH_FILE": "collectives.graph-file",
    "NCCL_ALGO": "collectives.algorithm-forced",
    "NCCL_PROTO": "collectives.protocol-forced",
    "NCCL_MAX_NCHANNELS": "collectives.channels-limited",
    "NCCL_MAX_CTAS": "collectives.blocks-limited",
    "NCCL_NTHREADS": "collectives.threads-set",
    "NCCL_BUFFSIZE": "collectives.buffer-set",
    "NCCL_SOCKET_IFNAME": "collectives.interfaces-limited",
    "NCCL_NET_GDR_LEVEL": "collectives.gdr-level-set",
    "CUDA_VISIBLE_DEVICES": "collectives.gpus-hidden",
    "CUDA_DEVICE_MAX_CONNECTIONS": "collectives.queues-limited",
    "LD_PRELOAD": "collectives.library-preloaded",
}
NO_P2P_LEVEL = {"LOC", "0"}
# Only the removal of these paths is visible in the numbers of one host.
SLOWING = {"NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE"}
SLOWING |= {"NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_BUFFSIZE", "NCCL_NTHREADS"}


def rule(case: Case) -> Iterator[Finding]:
    """Every active variable that changes paths or counts, the ones that forbid a path first."""
    m = case.machine
    measured = tuple(dict.fromkeys(row.op or "a collective" for row in m.measured.collectives))
    for name, code in _in_force(m):
        value = m.seen.environment[name]
        yield Claim("environment", Verdict.WARN).finding(
            code,
            seen=f"{name}={value[:80]}",
            wanted="not set",
            variable=name,
            collectives=measured or "none",
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
            none = name == "NCCL_P2P_LEVEL" and word.upper() in NO_P2P_LEVEL
            yield name, "collectives.p2p-level-none" if none else SETTINGS[name]


def _shows_all(value: str, count: int) -> bool:
    """0,1,...,n-1 hides nothing and renumbers nothing."""
    return value.replace(" ", "") == ",".join(str(i) for i in range(count)) and count > 0
