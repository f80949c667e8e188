"""NVLink-C2C: is every link between a GPU and its Grace CPU up, and without errors?

Sources: NVML fields 170 to 172 (links, status, speed) and 231 to 233 (interrupts, replays, replays in a row), as
nvidia-smi c2c -s and -e print them. Copies between host and GPU, and NCCL, use active links only. A link in its
low-power state is active.
"""

from gpucheck.checks._nvml import about, gaps_of, not_reported, of_each_gpu, quick_check
from gpucheck.model import C2cLink, Finding, Gpu
from gpucheck.model.facts import Facts

NAME = "c2c"
UNKNOWN_FIELD = 2  # NVML: invalid argument
# Replays of one link since the driver was loaded that are no reason to look, as for NVLink.
TOLERATED = 100
COUNT_FIELD = "NVML_FI_DEV_C2C_LINK_COUNT"
STATE_FIELDS = ("NVML_FI_DEV_C2C_LINK_GET_STATUS", "nvmlDeviceGetFieldValues")


@of_each_gpu(NAME, nothing="nvlink.no-c2c")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    links = gpu.health.c2c
    if not links:
        # Drivers and boards without NVLink-C2C do not know the field, which is no gap.
        refused = any(not (gap.absent or gap.code == UNKNOWN_FIELD) for gap in gaps_of(facts.nvml, gpu, COUNT_FIELD))
        return not_reported(NAME, facts.nvml, gpu, COUNT_FIELD, what="number of C2C links") if refused else None
    subject = about(NAME, gpu, *map(_line, links))
    up = sum(link.active is True for link in links)
    down = tuple(link.link for link in links if link.active is False)
    noisy = [
        f"C2C link {link.link}: {_errors(link)}"
        for link in links
        if link.interrupts or link.replays_in_a_row or (link.replays or 0) > TOLERATED
    ]
    if down:
        seen, wanted = f"{up} of {len(links)} C2C links active", f"{len(links)} active"
        return subject.fails("nvlink.c2c-down", seen, wanted, links=down)
    if noisy:
        return subject.warns("nvlink.c2c-errors", "; ".join(noisy), f"at most {TOLERATED} replays, nothing else")
    if up < len(links):
        return not_reported(NAME, facts.nvml, gpu, *STATE_FIELDS, what="state of C2C links")
    return subject.passes(f"{up} of {len(links)} C2C links active")


def _errors(link: C2cLink) -> str:
    counts = {"interrupts": link.interrupts, "replays": link.replays, "replays in a row": link.replays_in_a_row}
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def _line(link: C2cLink) -> str:
    state = {True: "active", False: "inactive", None: "state unknown"}[link.active]
    speed = [f"{link.speed_mb_s / 1000:g} GB/s"] if link.speed_mb_s else []
    return f"C2C link {link.link}: {', '.join([state, *speed, *filter(None, [_errors(link)])])}"


LIMITS = (f"WARN above {TOLERATED} replays of a link since the driver was loaded, as for NVLink",)
CHECK = quick_check(NAME, "hardware nvlink", evaluate, ("nvml",), limits=LIMITS)
