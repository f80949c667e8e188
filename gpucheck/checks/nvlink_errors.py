"""NVLink errors: do the links repeat, retrain or corrupt packets?

Source: nvmlDeviceGetNvLinkErrorCounter and the per-link fields (up to Hopper; Blackwell counts otherwise and is left
out). A recovery means that the link was down for a moment; replays and CRC errors cost bandwidth and announce it.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import each_gpu
from gpucheck.model import Check, Finding, Gpu, Host, NvLink, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "nvlink-errors"
# Corrected errors of one link since the driver was loaded that are no reason to look: a retrained link leaves some.
TOLERATED = 100
FIX = "reseat the bridge or baseboard, reset the GPU, and replace the part if they rise again: nvidia-smi nvlink -e"


def probe(host: Host) -> NvmlReading | NvmlFailure:
    """Ask NVML."""
    return host.nvml()


def evaluate(nvml: NvmlReading | NvmlFailure) -> Iterator[Finding]:
    """One finding a GPU whose links count their errors."""
    yield from each_gpu(NAME, nvml, _judge, nothing="no NVLink of this host counts its errors")


def _judge(gpu: Gpu) -> Finding | None:
    links = [link for link in gpu.nvlinks if link.active and _told(link)]
    if not links:
        return None
    marked = [link for link in links if _sum(link)]
    about = About(
        check=NAME,
        subject=f"gpu:{gpu.pci_bus_id}",
        evidence=tuple(
            f"link {link.link}: {link.replay_errors} replays, {link.recovery_errors} recoveries, {link.crc_errors} CRC"
            for link in marked
        ),
    )
    recovered = [link.link for link in links if link.recovery_errors]
    noisy = [link.link for link in links if _sum(link) > TOLERATED]
    if recovered:
        why = "these links went down and came back while in use"
        return about.warns(f"recoveries on links {_list(recovered)}", "none", why, FIX, "nvlink-errors")
    if noisy:
        why = "these links repeat packets: it costs bandwidth now, and announces a failing link"
        return about.warns(f"errors on links {_list(noisy)}", f"at most {TOLERATED} a link", why, FIX, "nvlink-errors")
    return about.passes(f"{sum(map(_sum, links))} errors on {len(links)} links", f"at most {TOLERATED} a link")


def _told(link: NvLink) -> bool:
    return not link.replay_errors is link.recovery_errors is link.crc_errors is None


def _sum(link: NvLink) -> int:
    return (link.replay_errors or 0) + (link.recovery_errors or 0) + (link.crc_errors or 0)


def _list(links: list[int]) -> str:
    return ", ".join(map(str, links))


CHECK = Check(NAME, frozenset({"hardware", "nvlink", "quick"}), probe, evaluate)
