"""NCCL_IB_HCA: does the environment have NCCL use the network cards of the GPUs, all of them and no others?

Source: environment variables of this process, and NCCL's documentation of NCCL_IB_HCA: a list of devices, each with a
port if wanted; ``^`` in front excludes, ``=`` takes whole names. Without ``=`` a name is the beginning of names: mlx5_1
also takes mlx5_10 to mlx5_19.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.network._cards import cards
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Alternative
from gpucheck.topology.nics import AMAZON, NEEDS, roles, variables

NAME = "nic-choice"
VARIABLE = "NCCL_IB_HCA"
ALTERNATIVES = (
    Alternative(cause="leftover-environment", would_show=f"jobs of other users do not set {VARIABLE}"),
    Alternative(cause="nccl-policy", would_show="the documentation of your cluster asks for these devices"),
)


class Choice(NamedTuple):
    """What the value states. names: without their ports."""

    names: tuple[str, ...]
    excludes: bool
    exact: bool

    def takes(self, device: str) -> bool:
        return any(self.fits(name, device) for name in self.names) is not self.excludes

    def fits(self, name: str, device: str) -> bool:
        return device == name if self.exact else device.startswith(name)


def choice_of(value: str) -> Choice:
    """Return what NCCL reads of a value; without names it takes every device."""
    text = value.strip()
    excludes = text.startswith("^")
    text = text.removeprefix("^")
    exact = text.startswith("=")
    names = tuple(name for entry in text.removeprefix("=").split(",") if (name := entry.partition(":")[0].strip()))
    return Choice(names, excludes or not names, exact)


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for the host."""
    value = facts.environment.get(VARIABLE)
    found, none = cards(NAME, facts)
    if value is None:
        yield Subject(check=NAME).skips("network.choice-is-automatic")
        return
    if none is not None:
        yield none
        return
    if all(card.pci.vendor_id == AMAZON for card in found):
        yield Subject(check=NAME).skips("network.choice-of-plugin")
        return
    choice = choice_of(value)
    own = [card.device.name for card in found if any(port.is_active for port in card.device.ports)]
    every = [device.name for device in facts.rdma]
    taken = [name for name in every if choice.takes(name)]
    unknown = [name for name in choice.names if not any(choice.fits(name, device) for device in every)]
    wanted = variables(found)[0].partition("=")[2] if own else "none"
    used = roles(facts)
    shown = [f"{name} ({used[name].name})" if name in used else name for name in taken]
    host = Subject(check=NAME, evidence=(f"{VARIABLE}={value}", f"takes: {', '.join(shown) or 'no device'}"))
    others = [name for name in taken if name not in own]
    left = [name for name in own if name not in taken]
    if unknown and not choice.excludes:
        yield _finding(host, "network.choice-not-there", ", ".join(unknown), wanted)
    elif others:
        yield _finding(host, "network.choice-of-others", ", ".join(others), wanted)
    elif left:
        yield _finding(host, "network.choice-leaves-out", ", ".join(left), wanted)
    else:
        yield host.passes(f"{len(taken)} network cards of the GPUs")


def _finding(host: Subject, code: str, devices: str, wanted: str) -> Finding:
    return host.warns(
        code, host.evidence[0], f"{VARIABLE}={wanted}", alternatives=ALTERNATIVES, devices=devices, line=wanted
    )


CHECK = quick_check(NAME, "software network", evaluate, (*NEEDS, "environment"))
