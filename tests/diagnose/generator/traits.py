"""Constants of one machine, drawn from the published ranges.

Sources: published measurements (servers with RTX PRO 6000 and 4090, nccl issues 814, 1264 and 1309, nccl-tests issues
74 and 331, the nvbandwidth README, the tables of stas00/ml-engineering). A range without a source is marked "guess".
"""

import random

from tests.diagnose.generator.world import Traits

# Share of raw NVLink payload that a copy engine reaches, by NVLink generation.
NVLINK = {1: (0.90, 0.93), 2: (0.93, 0.97), 3: (0.89, 0.93), 4: (0.80, 0.89), 5: (0.80, 0.86)}
AMD, INTEL = "amd", "intel"
CPUS = {
    (AMD, True): ("AMD EPYC 7302", "AMD EPYC 7542", "AMD EPYC 7763", "AMD EPYC 9374F", "AMD EPYC 9654"),
    (INTEL, True): (
        "Intel Xeon Gold 6148",
        "Intel Xeon Gold 6338",
        "Intel Xeon Platinum 8480+",
        "Intel Xeon E5-2690 v4",
    ),
    (AMD, False): ("AMD Ryzen 9 5950X", "AMD Ryzen 9 7950X", "AMD Ryzen Threadripper PRO 5975WX"),
    (INTEL, False): ("Intel Core i9-13900K", "Intel Core i7-12700K", "Intel Xeon W-2295"),
}


def cpu(rng: random.Random, gen: int, server: bool) -> tuple[str, str]:
    """Return the vendor and a CPU that has this PCIe generation."""
    if server and gen == 5:
        return rng.choice([(AMD, "AMD EPYC 9374F"), (AMD, "AMD EPYC 9654"), (INTEL, "Intel Xeon Platinum 8480+")])
    if server and gen == 4:
        names = [name for name in CPUS[AMD, True] if "9" not in name.split()[2][:1]]
        return rng.choice([(AMD, name) for name in names] + [(INTEL, "Intel Xeon Gold 6338")] * 2)
    if server:
        return INTEL, rng.choice(["Intel Xeon Gold 6148", "Intel Xeon E5-2690 v4"])
    vendor = rng.choice([AMD, INTEL])
    if gen == 5:
        return vendor, "AMD Ryzen 9 7950X" if vendor == AMD else "Intel Core i9-13900K"
    return vendor, rng.choice(CPUS[vendor, False])


def _socket(rng: random.Random, vendor: str, gen: int) -> float:
    """Share of raw between sockets: EPYC 0.6-0.85 (39-51 of 63, 21-25 of 31.5), old Intel down to 0.25."""
    if vendor == AMD:
        return rng.uniform(0.55, 0.82)
    return rng.uniform(0.25, 0.60) if gen == 3 else rng.uniform(0.30, 0.66)


def draw(rng: random.Random, vendor: str, gen: int, nvlink_gen: int) -> Traits:
    """Draw the constants of one machine with this CPU vendor, PCIe generation and NVLink generation."""
    payload = rng.uniform(0.83, 0.90)
    bridge = min(payload, rng.uniform(0.74, 0.88) if vendor == AMD else rng.uniform(0.62, 0.80))
    socket = min(bridge, _socket(rng, vendor, gen))
    staged = rng.uniform(0.45, 0.80)
    if staged > bridge and rng.random() < 0.8:
        # Staged copies above peer copies are real on old Intel hosts (1080 Ti, 11.3 against 9.0), but rare.
        staged = bridge * rng.uniform(0.75, 0.98)
    staged_socket = rng.uniform(0.82, 1.0)
    if rng.random() < (0.8 if vendor == AMD else 0.5):
        # Between sockets peer copies lose to staged ones on some hosts only, most of them Intel.
        staged_socket = min(staged_socket, socket * rng.uniform(0.75, 1.0) / staged)
    direct = rng.uniform(0.5, 1.8)
    nvlink_both = rng.uniform(1.82, 1.97)
    if nvlink_gen == 3 and rng.random() < 0.15:
        nvlink_both = 1.55  # A healthy A100 board read 416 for both directions of 270 each.
    return Traits(
        payload=payload,
        cascade=rng.uniform(0.96, 1.0),
        bridge=bridge,
        socket=socket,
        nvlink=rng.uniform(*NVLINK[nvlink_gen or 3]),
        staged=staged,
        staged_shared=rng.uniform(0.48, 0.62),
        staged_socket=staged_socket,
        staged_both=rng.uniform(1.0, 1.5),
        both={
            "PIX": rng.uniform(1.75, 1.97),
            "PXB": rng.uniform(1.70, 1.95),
            "PHB": rng.uniform(1.60, 1.95),
            "NODE": rng.uniform(1.60, 1.95),
            "SOCKET": rng.uniform(1.55, 1.92),
            "NVLINK": nvlink_both,
        },
        latency={
            "PIX": direct,
            "PXB": direct + rng.uniform(0.0, 0.3),
            "PHB": direct + rng.uniform(0.1, 0.5),
            "NODE": direct + rng.uniform(0.1, 0.7),
            "SOCKET": direct + rng.uniform(0.2, 1.6),
            "NVLINK": rng.uniform(0.9, 3.4),
        },
        staged_latency=rng.uniform(10.0, 19.0),
        host_copy=rng.uniform(0.76, 0.89),
        chipset=rng.uniform(0.80, 0.97),  # guess around one figure, 6.5 of 7.9 GB/s
        redirect=rng.uniform(0.30, 0.60),
        redirect_latency=rng.uniform(1.1, 1.6),
        translate=rng.uniform(0.20, 0.60),  # guess
        sigma=rng.uniform(0.004, 0.014),
    )
