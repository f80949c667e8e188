"""Health of network cards: does a driver report an error of a card from which it did not recover?

Source: reporters of devlink (generic netlink, as devlink health show prints them), of drivers that have them, such as
mlx5: firmware, transmit and receive queues. Their counts of errors are totals since the driver was loaded and are not
evaluated.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.printable import counted

NAME = "nic-health"


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each card with a reporter that is not healthy, or one for the host."""
    places = {name: function.bus_id for function in facts.pci for name in function.infiniband_names}
    cards = [device for device in facts.rdma if device.reporters]
    own: list[Finding] = []
    for device in cards:
        subject = Subject(check=NAME, name=f"nic:{places.get(device.name, device.name)}")
        subject = subject.with_evidence(*(f"{device.name} reporter {name}: {s}" for name, s in device.reporters))
        wrong = [name for name, state in device.reporters if state == "error"]
        unread = [state for _, state in device.reporters if state not in ("healthy", "error")]
        if wrong:
            seen = f"{', '.join(wrong)} in state error"
            own.append(subject.warns("network.reporter-error", seen, "healthy", device=device.name))
        elif unread:
            own.append(subject.unknown("network.reporter-unread", device=device.name, reason=unread[0]))
    yield from own
    if not cards:
        code = "network.no-reporter" if facts.rdma else "network.no-rdma-device"
        yield Subject(check=NAME).skips(code, len(facts.rdma))
    elif not own:
        yield Subject(check=NAME).passes(f"{counted(sum(len(one.reporters) for one in cards), 'reporter')} healthy")


CHECK = quick_check(NAME, "hardware network", evaluate, ("rdma", "pci"))
