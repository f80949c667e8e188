"""NVLink errors: do the links repeat, retrain or corrupt packets?

Sources: nvmlDeviceGetNvLinkErrorCounter and the fields DL_REPLAY, DL_RECOVERY, DL_CRC up to Hopper; from Blackwell on
the fields NVLINK_COUNT_*, whose baseline on healthy racks is zero (marin#9086: of 320 GPUs with 18 links each one link
had recovery events, 505 of them, and failed five days later). A recovery means that the link was down for a moment.

Bit error rates are recorded, not evaluated: bits 0 to 7 are the exponent and bits 8 to 11 the mantissa of
mantissa x 10^-exponent (nvml.h), and no limit for them is published. 15e-255 stands for too low to measure.
"""

from collections.abc import Iterator

from gpucheck.checks._case import Case, new_errors
from gpucheck.checks._nvml import Nvml, about, gaps_of, not_reported, of_each_gpu, quick_check
from gpucheck.model import C2cLink, Finding, Gpu, NvLink, NvmlReading, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.host.hardware import NVLINK_5

NAME = "nvlink-errors"
# Corrected errors of one link since the driver was loaded that are no reason to look: a retrained link leaves some.
TOLERATED = 100
RECOVERIES = ("recoveries", "recoveries_succeeded", "recoveries_failed")
CALLS = ("nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkErrorCounter", "nvmlDeviceGetFieldValues")


@of_each_gpu(NAME, nothing="nvlink.no-error-counters")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    """One finding for each GPU whose links count their errors."""
    found = _counted(gpu)
    if found is None or found.verdict is Verdict.PASS:  # no error in what was reported
        return _unread(facts.nvml, gpu) or found
    return found


def _unread(nvml: Nvml, gpu: Gpu) -> Finding | None:
    gaps = [gap for gap in nvml.gaps if gap.code not in (2, 3)] if isinstance(nvml, NvmlReading) else []
    subject = f"link:{gpu.pci_bus_id}/"
    every = [gap.call for gap in gaps if gap.subject.startswith(subject)]
    calls = tuple(dict.fromkeys(c for c in every if c in CALLS or "NVLINK_ERROR" in c or "NVLINK_COUNT" in c))
    active = [link for link in gpu.nvlinks if link.active]
    if active and all(map(_complete, active)) and "nvmlDeviceGetNvLinkState" not in calls:
        return None
    return not_reported(NAME, nvml, gpu, *calls, what="NVLink error counters") if calls else None


def _counted(gpu: Gpu) -> Finding | None:
    links = [
        link for link in gpu.nvlinks if link.active and (link.counts or link.errors or link.recoveries is not None)
    ]
    if not links:
        return None
    subject = about(NAME, gpu, *(_line(link) for link in links if _errors(link) or link.recoveries))
    recovered = [f"NVLink {link.link}: {_times(link.recoveries)}" for link in links if link.recoveries]
    noisy = []
    for link in links:
        if sum((errors := _errors(link)).values()) > TOLERATED:
            name, count = max(errors.items(), key=lambda item: item[1])
            noisy.append(f"NVLink {link.link}: {count:,} {name}")
    if recovered:
        return subject.warns("nvlink.link-recovered", "; ".join(recovered), "0 recoveries")
    if noisy:
        return subject.warns("nvlink.packets-repeated", "; ".join(noisy), f"at most {TOLERATED} a link")
    total = sum(sum(_errors(link).values()) for link in links)
    return subject.passes(f"{total:,} errors on {len(links)} NVLinks")


def _complete(link: NvLink) -> bool:
    """Whether every counter of one generation was reported, so that a missing one of the other costs nothing."""
    if link.counts is not None:
        return all(getattr(link.counts, field) is not None for field in (*NVLINK_5, *RECOVERIES))
    return None not in (link.replay_errors, link.recovery_errors, link.crc_errors)


def _errors(link: NvLink) -> dict[str, int]:
    return {name: count for name, count in link.errors.items() if count}


def _times(recoveries: int) -> str:
    return f"{recoveries:,} recover{'ies' if recoveries > 1 else 'y'}"


def _line(link: NvLink) -> str:
    parts = [f"{count} {name}" for name, count in _errors(link).items()]
    parts += [_times(link.recoveries)] if link.recoveries else []
    failed = link.counts.recoveries_failed if link.counts else None
    parts += [f"{failed} of them failed"] if failed else []
    if link.counts is not None:
        rates = (("effective", link.counts.effective_ber), ("symbol", link.counts.symbol_ber))
        # As nvidia-smi prints it: mantissa and decimal exponent.
        parts += [f"{name} bit error rate {raw >> 8 & 0xF}e-{raw & 0xFF}" for name, raw in rates if raw is not None]
    return f"NVLink {link.link}: {', '.join(parts)}"


def rule(case: Case) -> Iterator[Finding]:
    """NVLink errors that rose while GPUs copied."""
    return new_errors(case, "links.nvlink-errors-new", of_pcie=False)


C2C = "c2c"
UNKNOWN_FIELD = 2  # NVML: invalid argument
COUNT_FIELD = "NVML_FI_DEV_C2C_LINK_COUNT"
STATE_FIELDS = ("NVML_FI_DEV_C2C_LINK_GET_STATUS", "nvmlDeviceGetFieldValues")


@of_each_gpu(C2C, nothing="nvlink.no-c2c")
def c2c(facts: Facts, gpu: Gpu) -> Finding | None:
    """NVLink-C2C: is every link between a GPU and its Grace CPU up, and without errors?

    Sources: NVML fields 170 to 172 (links, status, speed) and 231 to 233 (interrupts, replays, replays in a row), as
    nvidia-smi c2c -s and -e print them. Copies between host and GPU, and NCCL, use active links only. A link in its
    low-power state is active.
    """
    links = gpu.health.c2c
    if not links:
        # Drivers and boards without NVLink-C2C do not know the field, which is no gap.
        refused = any(not (gap.absent or gap.code == UNKNOWN_FIELD) for gap in gaps_of(facts.nvml, gpu, COUNT_FIELD))
        return not_reported(C2C, facts.nvml, gpu, COUNT_FIELD, what="number of C2C links") if refused else None
    subject = about(C2C, gpu, *map(_c2c_line, links))
    up = sum(link.active is True for link in links)
    down = tuple(link.link for link in links if link.active is False)
    noisy = [
        f"C2C link {link.link}: {_c2c_errors(link)}"
        for link in links
        if link.interrupts or link.replays_in_a_row or (link.replays or 0) > TOLERATED
    ]
    if down:
        seen, wanted = f"{up} of {len(links)} C2C links active", f"{len(links)} active"
        return subject.fails("nvlink.c2c-down", seen, wanted, links=down)
    if noisy:
        return subject.warns("nvlink.c2c-errors", "; ".join(noisy), f"at most {TOLERATED} replays, nothing else")
    if up < len(links):
        return not_reported(C2C, facts.nvml, gpu, *STATE_FIELDS, what="state of C2C links")
    return subject.passes(f"{up} of {len(links)} C2C links active")


def _c2c_errors(link: C2cLink) -> str:
    counts = {"interrupts": link.interrupts, "replays": link.replays, "replays in a row": link.replays_in_a_row}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def _c2c_line(link: C2cLink) -> str:
    state = {True: "active", False: "inactive", None: "state unknown"}[link.active]
    speed = [f"{link.speed_mb_s / 1000:g} GB/s"] if link.speed_mb_s else []
    return f"C2C link {link.link}: {', '.join([state, *speed, *filter(None, [_c2c_errors(link)])])}"


LIMITS = (f"WARN above {TOLERATED} corrected errors of a link since the driver was loaded, and at one recovery",)
C2C_LIMITS = (f"WARN above {TOLERATED} replays of a link since the driver was loaded, as for NVLink",)
CHECK = quick_check(NAME, "hardware nvlink", evaluate, ("nvml",), limits=LIMITS)
CHECKS = (CHECK, quick_check(C2C, "hardware nvlink", c2c, ("nvml",), limits=C2C_LIMITS))
