"""GPUDirect RDMA: can the network cards of the GPUs read and write GPU memory, without a copy through host memory?

Source: modules of /proc/modules, flavor of the NVIDIA module, version of the kernel. One of two ways is enough:
nvidia_peermem, which needs an RDMA stack with the peer memory interface, or DMA-BUF, which needs the open modules and
Linux 5.12 (NVIDIA's GPUDirect RDMA documentation; kernels of EL 8 have parts of it, which their version does not show).
Whether a transfer works is shown by a job alone: NCCL logs GDRDMA for the channels that use it.
"""

import re
from collections.abc import Iterator

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.network._cards import cards
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.topology.nics import NEEDS

NAME = "gpudirect"
MODULES = "/proc/modules"
PEER_MEMORY = re.compile(r"^(nvidia_peermem|nv_peer_mem) ", re.MULTILINE)
RELEASE = re.compile(r"(\d{1,3})\.(\d{1,3})\.")
DMA_BUF = (5, 12)
# Drivers of cards that register DMA-BUF (reg_user_mr_dmabuf in drivers/infiniband/hw of Linux), and a version of Linux
# in which they do; of others it depends on their own version.
WITH_DMA_BUF = {"mlx5_core": DMA_BUF, "efa": (6, 1)}
WITH_BACKPORTS, NEVER = ".el8", 1000


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for the host."""
    found, none = cards(NAME, facts)
    if none is not None:
        yield none
        return
    driver, modules = facts.driver, facts.texts[MODULES]
    release = RELEASE.match(facts.system.kernel)
    kernel = (int(release[1]), int(release[2])) if release else None
    peer = PEER_MEMORY.search(modules or "")
    evidence = (
        f"network cards: {', '.join(card.device.name for card in found)}",
        f"peer memory module: {peer[1] if peer else 'none' if modules else 'not known'}",
        f"NVIDIA module: {driver.loaded_flavour or 'not loaded'}; kernel {facts.system.kernel}",
    )
    host = Subject(check=NAME, evidence=evidence)
    if driver.loaded_version is None:
        yield host.unknown("network.gpudirect-without-driver", because_of="driver")
    elif peer:
        yield host.passes(peer[1])
    elif driver.loaded_flavour == "open" and kernel is not None and kernel >= DMA_BUF:
        if all(kernel >= WITH_DMA_BUF.get(card.pci.driver or "", (NEVER, 0)) for card in found):
            yield host.passes("DMA-BUF")
        else:
            yield host.unknown("network.gpudirect-unknown")
    elif modules is None or (driver.loaded_flavour == "open" and WITH_BACKPORTS in facts.system.kernel):
        yield host.unknown("network.gpudirect-unknown")
    elif driver.loaded_flavour == "open":
        yield host.warns("network.gpudirect-kernel", facts.system.kernel, "Linux 5.12")
    else:
        yield host.warns("network.gpudirect-missing", "no way to GPU memory", "nvidia_peermem")


CHECK = quick_check(NAME, "software network", evaluate, (*NEEDS, "driver", "system", f"text:{MODULES}"))
