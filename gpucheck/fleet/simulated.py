"""Simulated fleets: real runs on simulated hosts as templates, numbers drawn around what the machine should reach.

A fault is written ``NAME[:key=value,...]:WHERE`` with WHERE a share (``3%``), a number of hosts (``12``) or
``rack=r007``. Most faults are those of the simulated machine, and the host's own run finds them. Those of SLOW change
measured numbers only, by ``loss`` percent: the host does not complain, only the fleet can see them.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gpucheck.fleet.drawn import COMPONENTS, SLOW, Drawing, Noise, measurements
from gpucheck.model import Report

RACK = 16


class FleetFault(NamedTuple):
    """A fault and its hosts. machine: the fault of the simulated machine, None for a fault of SLOW."""

    name: str
    parameters: dict[str, str]
    where: str

    @property
    def machine(self) -> str | None:
        """``NAME:key=value`` for the simulator."""
        if self.name in SLOW:
            return None
        words = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.name}:{words}" if words else self.name

    @property
    def words(self) -> str:
        """As it was written."""
        words = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return ":".join(part for part in (self.name, words, self.where) if part)


class SimulatedHost(NamedTuple):
    """One host of a simulated fleet. fault: None where it is healthy; numbers are drawn from its own seed."""

    name: str
    rack: str
    fault: FleetFault | None
    seed: int


def parse_fault(words: str) -> FleetFault:
    """Raises ValueError with the whole sentence when it is not written as a fault of a fleet."""
    rest, _, where = words.rpartition(":")
    name, _, given = rest.partition(":")
    usage = f"--fault {words}: is written NAME[:key=value,...]:WHERE with WHERE 3%, 12 or rack=r007."
    if not name or not _is_where(where):
        raise ValueError(usage)
    parameters: dict[str, str] = {}
    for pair in given.split(",") if given else ():
        key, equals, value = pair.partition("=")
        if not (key and equals and value) or key in parameters:
            raise ValueError(usage)
        parameters[key] = value
    fault = FleetFault(name, parameters, where)
    if name in SLOW:
        _check_slow(fault, words)
    return fault


def plan(hosts: int, faults: Sequence[FleetFault], seed: int) -> list[SimulatedHost]:
    """Assign faults to hosts; no host has two. Raises ValueError if there are too few hosts."""
    rng = random.Random(seed)  # noqa: S311 - a simulation that must repeat, no secret
    racks = [f"r{i // RACK + 1:03d}" for i in range(hosts)]
    width = max(2, len(str(RACK)))
    names = [f"sim-{rack}-n{i % RACK + 1:0{width}d}" for i, rack in enumerate(racks)]
    assigned: dict[int, FleetFault] = {}
    for fault in sorted(faults, key=lambda f: "=" not in f.where):
        free = [i for i in range(hosts) if i not in assigned]
        for i in _chosen(fault, hosts, racks, free, rng):
            assigned[i] = fault
    return [SimulatedHost(names[i], racks[i], assigned.get(i), rng.getrandbits(48)) for i in range(hosts)]


def reports(hosts: Sequence[SimulatedHost], templates: Mapping[str | None, Report], noise: Noise) -> Iterator[Report]:
    """One report a host. templates: by the machine's fault, None for the healthy machine."""
    for host in hosts:
        yield _report(host, templates[host.fault.machine if host.fault else None], noise)


def truth(hosts: Sequence[SimulatedHost]) -> str:
    """The ground truth as CSV: host, rack, fault; an empty fault is a healthy host."""
    lines = ["host,rack,fault", *(f'{h.name},{h.rack},"{h.fault.words if h.fault else ""}"' for h in hosts)]
    return "\n".join(lines) + "\n"


def _report(host: SimulatedHost, template: Report, noise: Noise) -> Report:
    rng = random.Random(host.seed)  # noqa: S311 - a simulation that must repeat, no secret
    fault = host.fault if host.fault and host.fault.machine is None else None
    drawing = Drawing(fault.name if fault else "", fault.parameters if fault else {}, noise.of_a_number, rng)
    return msgspec.structs.replace(
        template,
        host=host.name,
        simulation=_simulation(template, host.fault),
        system=msgspec.structs.replace(template.system, hostname=host.name),
        seconds=round(template.seconds * rng.uniform(0.9, 1.3), 3),
        measurements=measurements(template, drawing),
        attributes={**template.attributes, "rack": (host.rack,)},
    )


def _simulation(template: Report, fault: FleetFault | None) -> Any:
    """A drawn fault is a fault of the simulation as much as one of the machine."""
    simulation = template.simulation
    if simulation is None:
        return None
    faults = simulation.faults if fault is None or fault.machine else (*simulation.faults, fault.words)
    stand_ins = (*simulation.stand_ins, *COMPONENTS)
    return msgspec.structs.replace(simulation, faults=faults, stand_ins=stand_ins)


def _check_slow(fault: FleetFault, words: str) -> None:
    unknown = fault.parameters.keys() - SLOW[fault.name].keys()
    if unknown:
        known = ", ".join(sorted(SLOW[fault.name]))
        raise ValueError(f"--fault {words}: {min(unknown)!r} is not one of {known or 'its parameters: it has none'}.")
    loss, gpu, pair = (fault.parameters.get(key, "") for key in ("loss", "gpu", "pair"))
    if loss and not (loss.replace(".", "", 1).isdigit() and 0 < float(loss) <= 100):
        raise ValueError(f"--fault {words}: loss is a percentage above 0 and up to 100, not {loss!r}.")
    if (gpu and not gpu.isdigit()) or (pair and not all(p.isdigit() for p in pair.split("-", 1))):
        raise ValueError(f"--fault {words}: gpu is an index (3), pair two of them (0-1).")


def _is_where(where: str) -> bool:
    share = where.removesuffix("%")
    return where.startswith("rack=") or share.replace(".", "", 1 if where.endswith("%") else 0).isdigit()


def _chosen(fault: FleetFault, hosts: int, racks: list[str], free: list[int], rng: random.Random) -> list[int]:
    if fault.where.startswith("rack="):
        rack = fault.where.removeprefix("rack=")
        found = [i for i in free if racks[i] == rack]
        if not found:
            raise ValueError(
                f"--fault {fault.words}: no free host is in rack {rack}; racks are {racks[0]} to {racks[-1]}."
            )
        return found
    share = fault.where.endswith("%")
    count = round(hosts * float(fault.where[:-1]) / 100) if share else int(fault.where)
    if count > len(free):
        raise ValueError(f"--fault {fault.words}: needs {count} hosts, {len(free)} of {hosts} are still healthy.")
    return rng.sample(free, count)
