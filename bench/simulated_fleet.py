"""Write the reports of a SIMULATED fleet, with labels.csv and ground-truth.csv, for bench/fleet.sh and the tests.

A real run on each kind of simulated machine is the template; the bandwidths of each host are drawn around it.
A fault is NAME[:key=value,...]:WHERE with WHERE a share (3%), a number of hosts (12) or rack=r007. SLOW faults change
drawn numbers only: the host reports no problem. Other faults are those of the simulated machine.

usage: python bench/simulated_fleet.py [--hosts N] [--profile NAME] [--seed N] [--fault FAULT]... DIR
"""

import argparse
import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpucheck.model import Report

SLOW = ("slow-host", "slow-gpu", "slow-pair")
RACK = 16
# Two healthy hosts of one kind differ by about this much.
HOST_SPREAD = 0.005
# What two directions at once reach of twice one direction.
BOTH_WAYS = 0.97
# 5 % of one sample; a reported number is the median of 15 (1.2533: standard error of a median over that of a mean).
NOISE = 0.05 * 1.2533 / 15**0.5


class Fault(NamedTuple):
    """words: as written, without WHERE."""

    words: str
    where: str

    @property
    def machine(self):
        """The fault of the simulated machine, None for a SLOW one."""
        return None if self.words.startswith(SLOW) else self.words


class Host(NamedTuple):
    name: str
    rack: str
    fault: Fault | None
    seed: int


def parse_fault(text):
    words, _, where = text.rpartition(":")
    return Fault(words, where)


def plan(hosts, faults, seed):
    """Assign faults to hosts; no host has two."""
    rng = random.Random(seed)
    racks = [f"r{i // RACK + 1:03d}" for i in range(hosts)]
    assigned = {}
    for fault in sorted(faults, key=lambda fault: "=" not in fault.where):
        free = [i for i in range(hosts) if i not in assigned]
        kind, _, value = fault.where.partition("=")
        if kind == "rack":
            chosen = [i for i in free if racks[i] == value]
        else:
            share = fault.where.removesuffix("%")
            chosen = rng.sample(free, round(hosts * float(share) / 100) if share != fault.where else int(share))
        assigned.update(dict.fromkeys(chosen, fault))
    names = [f"sim-{rack}-n{i % RACK + 1:02d}" for i, rack in enumerate(racks)]
    return [Host(names[i], racks[i], assigned.get(i), rng.getrandbits(48)) for i in range(hosts)]


def template(profile, fault=None):
    """The report of a run on the simulated machine."""
    words = ["verify", "--simulate", profile, "--level", "quick", "--format", "json"]
    words += ["--fault", fault] if fault else []
    done = subprocess.run([sys.executable, "-m", "gpucheck", *words], capture_output=True, check=False)
    if not done.stdout:
        sys.exit(done.stderr.decode())
    return msgspec.json.decode(done.stdout, type=Report)


def report(host, template, noise=NOISE):
    """One host's report. noise: relative error of a reported number."""
    rng = random.Random(host.seed)
    spread = rng.gauss(1.0, HOST_SPREAD)
    pairs = []
    for pair in template.topology.pairs if template.topology else ():
        rate = spread * pair.expected.unidirectional_gb_s * _left(host.fault, pair) if pair.expected else 0.0
        for a, b in ((pair.a, pair.b), (pair.b, pair.a)) if rate else ():
            one, both = (round(each * rng.gauss(1.0, noise), 3) for each in (rate, 2 * BOTH_WAYS * rate))
            spread_of = {"mad_percent": 0.5, "slowest_gb_s": one, "fastest_gb_s": one, "samples": 15}
            measured = {"gb_s": one, "size_bytes": 1 << 28, **spread_of}
            of_pair = {"src": a, "dst": b, "class": pair.cls, "low_gb_s": pair.expected.low_gb_s}
            pairs.append({**of_pair, "measured": measured, "both_ways_gb_s": both})
    gpus = template.topology.gpus if template.topology else ()
    devices = [{"index": gpu.index, "name": gpu.name, "bus_id": gpu.pci_bus_id} for gpu in gpus]
    copies = {"engine": "simulated", "devices": devices, "pairs": pairs}
    simulation = template.simulation
    if host.fault and host.fault.machine is None:
        simulation = msgspec.structs.replace(simulation, faults=(*simulation.faults, host.fault.words))
    return msgspec.structs.replace(
        template,
        host=host.name,
        simulation=msgspec.structs.replace(simulation, stand_ins=(*simulation.stand_ins, "drawn bandwidths")),
        system=msgspec.structs.replace(template.system, hostname=host.name),
        measurements={**template.measurements, **({"p2p": copies} if pairs else {})},
        attributes={**template.attributes, "rack": (host.rack,)},
    )


def _left(fault, pair):
    """The part of the bandwidth that a SLOW fault leaves a pair."""
    if fault is None or fault.machine is not None:
        return 1.0
    name, _, given = fault.words.partition(":")
    values = dict(word.split("=") for word in given.split(","))
    hit = {
        "slow-host": True,
        "slow-gpu": values.get("gpu") in (str(pair.a), str(pair.b)),
        "slow-pair": values.get("pair") == f"{pair.a}-{pair.b}",
    }
    return 1 - float(values["loss"]) / 100 if hit[name] else 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--profile", default="hgx-h100-x8")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", action="append", type=parse_fault, default=[])
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    hosts = plan(options.hosts, options.fault, options.seed)
    kinds = dict.fromkeys(host.fault.machine if host.fault else None for host in hosts)
    templates = {fault: template(options.profile, fault) for fault in kinds}
    for host in hosts:
        made = report(host, templates[host.fault.machine if host.fault else None])
        (options.folder / f"{host.name}.json").write_bytes(msgspec.json.encode(made) + b"\n")
    labels = "".join(f"{host.name},{host.rack}\n" for host in hosts)
    (options.folder / "labels.csv").write_text(f"host,rack\n{labels}")
    truth = "".join(f'{h.name},{h.rack},"{h.fault.words if h.fault else ""}"\n' for h in hosts)
    (options.folder / "ground-truth.csv").write_text(f"host,rack,fault\n{truth}")


if __name__ == "__main__":
    main()
