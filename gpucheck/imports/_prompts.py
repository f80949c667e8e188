"""Commands that were typed: the prompt of a shell and what follows it."""

import re

LONGEST = 600
# A shell prompt and the command after it. The host is that of user@host.
PROMPT = re.compile(
    r"\s{0,8}(?:\([\w.-]{1,40}\) ?)?(?:"
    r"\[?[\w.-]{1,40}@(?P<host>[\w.-]{1,80})[: ][^$#%>]{0,200}[$#%>]|\$|(?:PS )?[A-Za-z]:\\[^>]{0,200}>"
    r"|[\u276f\u279c])(?:\s+(?P<command>\S.*)|\s*$)"
)
# A bare prompt of root, or a command that was pasted with nothing before it.
BARE = re.compile(
    r"\s{0,8}(?:[#%>]\s+)?(?:sudo\s+)?(?:\./|/\S{1,200}/)?(?:nvidia-smi|lspci|dmesg|journalctl|dcgmi|nvbandwidth|"
    r"\w{2,20}_perf|p2pBandwidthLatencyTest|bandwidthTest|simpleP2P|ibstat|ibv_devinfo|rdma|mpirun|srun|nvcc|"
    r"modprobe|dkms|ib_\w{2,20}|cat|uname|docker|kubectl)\b[^:|=]{0,300}$"
)
# Names that do not identify the host: those of containers.
NO_NAME = re.compile(r"[0-9a-f]{12}|localhost|docker|container|pod", re.IGNORECASE)


def prompts(text: list[str], at: list[int]) -> dict[int, str | None]:
    """Find the lines that are typed commands, with the host that the prompt names."""
    found: dict[int, str | None] = {}
    for i in at:
        line = text[i]
        if len(line) < LONGEST:
            if match := PROMPT.match(line):
                found[i] = _machine(match["host"])
            elif BARE.match(line):
                found[i] = None
    return found


def _machine(host: str | None) -> str | None:
    if host is None or NO_NAME.fullmatch(host):
        return None
    return host.partition(".")[0]
