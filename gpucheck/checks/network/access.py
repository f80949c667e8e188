"""Access to network cards: can programs of this host use RDMA on the network cards of the GPUs?

Sources: the device file of each card (/dev/infiniband/uverbsN, named in /sys/class/infiniband_verbs) and whether this
process may read and write it; the loader's cache; /etc/libibverbs.d, which names the providers that libibverbs loads
(libibverbs/dynamic_driver.c of rdma-core). NCCL loads libibverbs at run time: without a file, library or provider it
uses sockets and reports no error. EFA is used through libfabric, so of it only the files are evaluated.
"""

import re
from collections.abc import Iterable, Iterator

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.network._cards import about, cards
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.topology.nics import AMAZON, NEEDS, Card, cards_of_gpus, may_have_gpudirect

NAME = "nic-access"
LIBRARY, PROVIDERS = "libibverbs", "/etc/libibverbs.d"
# Kernel driver of a card, and its provider in rdma-core.
PROVIDER = {"mlx5_core": "mlx5", "mlx4_core": "mlx4", "bnxt_en": "bnxt_re"}
# A library elsewhere, as in LD_LIBRARY_PATH, may have been built for another directory of providers.
OF_THE_SYSTEM = ("/lib", "/usr/lib")


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each card without its file, or one for the host; then one for the library if it is missing."""
    every, none = cards(NAME, facts)
    if none is not None:
        yield none
        return
    found = [card for card in every if card.device.unread is None]
    if not found:
        subject, device = about(NAME, every[0]), every[0].device
        yield subject.unknown("network.device-unreadable", device=device.name, reason=device.unread)
        return
    missing = [card for card in found if card.device.verbs_error == "ENOENT" or card.device.verbs is None]
    forbidden = [card for card in found if card not in missing and card.device.verbs_error]
    host = Subject(check=NAME, evidence=tuple(_line(card) for card in found))
    hidden = [card for card in forbidden if card.device.verbs_error == "EPERM"]
    hidden += missing if facts.system.container else []
    if hidden:
        yield host.skips("network.access-hidden", count=len(hidden), total=len(found))
        return
    bad = [*_of_files(host, found, missing, forbidden), *_of_library(facts, found)]
    yield from bad
    if not bad:
        yield host.passes(f"device files of {len(found)} network cards{', libibverbs' if _by_verbs(found) else ''}")


def _of_files(host: Subject, found: list[Card], missing: list[Card], forbidden: list[Card]) -> Iterator[Finding]:
    if len(missing) == len(found):
        yield host.warns("network.access-no-files", "no device file", f"{len(found)} device files")
        return
    for card in missing:
        yield about(NAME, card, _line(card)).fails("network.access-no-file", "no device file", device=card.device.name)
    if forbidden:
        seen = f"{len(forbidden)} of {len(found)} device files"
        yield host.warns("network.access-forbidden", f"no access to {seen}", "read and write access")


def _of_library(facts: Facts, found: list[Card]) -> Iterator[Finding]:
    if not _by_verbs(found):
        return
    if facts.libraries is None:
        yield Subject(check=NAME).unknown("network.verbs-unknown")
        return
    first = next((one for one in facts.libraries if one.soname.startswith(f"{LIBRARY}.so")), None)
    if first is None:
        subject = Subject(check=NAME, evidence=(f"no {LIBRARY}.so in LD_LIBRARY_PATH and the loader's cache",))
        yield subject.warns("network.verbs-missing", "no libibverbs.so.1", "libibverbs.so.1")
        return
    names = facts.folders[PROVIDERS]
    wanted = {PROVIDER[card.pci.driver] for card in found if card.pci.driver in PROVIDER}
    without = sorted(name for name in wanted if f"{name}.driver" not in (names or ()))
    if without and first.path.startswith(OF_THE_SYSTEM):
        evidence = (first.path, f"{PROVIDERS}: {' '.join(names or ()) or 'no file'}")
        seen, expected = f"no provider {', '.join(without)}", ", ".join(f"{name}.driver" for name in without)
        yield Subject(check=NAME, evidence=evidence).warns("network.verbs-no-provider", seen, expected)


def _by_verbs(found: Iterable[Card]) -> bool:
    return any(card.pci.vendor_id != AMAZON for card in found)


def _line(card: Card) -> str:
    device = card.device
    file = f"/dev/infiniband/{device.verbs}" if device.verbs else "no file in /sys/class/infiniband_verbs"
    return f"{device.name}: {file}{f': {device.verbs_error}' if device.verbs_error else ''}"


GPUDIRECT = "gpudirect"
MODULES = "/proc/modules"
PEER_MEMORY = re.compile(r"^(nvidia_peermem|nv_peer_mem) ", re.MULTILINE)
RELEASE = re.compile(r"(\d{1,3})\.(\d{1,3})\.")
DMA_BUF = (5, 12)
# Drivers of cards that register DMA-BUF (reg_user_mr_dmabuf in drivers/infiniband/hw of Linux), and a version of Linux
# in which they do; of others it depends on their own version.
WITH_DMA_BUF = {"mlx5_core": DMA_BUF, "efa": (6, 1)}
WITH_BACKPORTS, NEVER = ".el8", 1000


def gpudirect(facts: Facts) -> Iterator[Finding]:
    """GPUDirect RDMA: can the network cards of the GPUs read and write GPU memory, without a copy through host memory?

    Source: modules of /proc/modules, flavor of the NVIDIA module, version of the kernel. One of two ways is enough:
    nvidia_peermem, which needs an RDMA stack with the peer memory interface, or DMA-BUF, which needs the open modules
    and Linux 5.12 (NVIDIA's GPUDirect RDMA documentation; kernels of EL 8 have parts of it, which their version does
    not show). GeForce has neither. The driver of EFA outside Linux may have a way of its own to closed modules
    (amzn/amzn-drivers#282). Only a job shows whether a transfer works: NCCL logs GDRDMA for channels that use it.
    """
    found, none = cards(GPUDIRECT, facts)
    if none is not None:
        yield none
        return
    if not may_have_gpudirect(facts):
        yield Subject(check=GPUDIRECT).skips("network.gpudirect-geforce")
        return
    driver, modules = facts.driver, facts.texts[MODULES]
    efa = all(card.pci.vendor_id == AMAZON for card in found)
    release = RELEASE.match(facts.system.kernel)
    kernel = (int(release[1]), int(release[2])) if release else None
    peer = PEER_MEMORY.search(modules or "")
    evidence = (
        f"network cards: {', '.join(card.device.name for card in found)}",
        f"peer memory module: {peer[1] if peer else 'none' if modules else 'not known'}",
        f"NVIDIA module: {driver.loaded_flavour or 'not loaded'}; kernel {facts.system.kernel}",
    )
    host = Subject(check=GPUDIRECT, evidence=evidence)
    if driver.loaded_version is None:
        yield host.unknown("network.gpudirect-without-driver", because_of="driver")
    elif peer and not efa:
        yield host.passes(peer[1])
    elif driver.loaded_flavour == "open" and kernel is not None and kernel >= DMA_BUF:
        if all(kernel >= WITH_DMA_BUF.get(card.pci.driver or "", (NEVER, 0)) for card in found):
            yield host.passes("DMA-BUF")
        else:
            yield host.unknown("network.gpudirect-unknown")
    elif modules is None or efa or (driver.loaded_flavour == "open" and WITH_BACKPORTS in facts.system.kernel):
        yield host.unknown("network.gpudirect-unknown")
    elif driver.loaded_flavour == "open":
        yield host.warns("network.gpudirect-kernel", facts.system.kernel, "Linux 5.12")
    else:
        yield host.warns("network.gpudirect-missing", "no way to GPU memory", "nvidia_peermem")


OF_CARDS = (f"library:{LIBRARY}", f"folder:{PROVIDERS}")
CHECK = quick_check(
    NAME, "software network", evaluate, (*NEEDS, "system"), more=lambda facts: OF_CARDS if cards_of_gpus(facts) else ()
)
CHECKS = (CHECK, quick_check(GPUDIRECT, "software network", gpudirect, (*NEEDS, "driver", "system", f"text:{MODULES}")))
