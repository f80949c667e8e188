"""The IMEX daemon of a rack: from stack.yml to its service and its list of nodes.

The list must be the same on every node of a domain. Slurm's prolog writes it for each job and starts the daemon.
NVIDIA's DRA driver runs its daemon in a container, and a second one on the host would conflict with it.
"""

import ipaddress
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from gpucheck.knowledge.strict import InputProblem, Value

SERVICE = "nvidia-imex"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
MOST_NODES = 1024


class Imex(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """stack.yml's ``imex``. nodes: addresses of every node of the domain, for systemd alone."""

    service: Literal["none", "slurm", "systemd"] = "none"
    nodes: tuple[str, ...] = ()


def read_imex(value: Value) -> Imex:
    """Read ``none``, ``slurm``, or ``service`` and ``nodes``. Raises InputProblem with the line."""
    if not value.is_mapping:
        return _checked(value, value.word("none", "auto", "slurm", "systemd"), ())
    found = value.fields({"service": lambda row: row.word("none", "slurm", "systemd"), "nodes": _nodes})
    return _checked(value, found.get("service", "none"), found.get("nodes", ()))


def _checked(value: Value, service: str, nodes: tuple[str, ...]) -> Imex:
    if service == "systemd" and not nodes:
        raise value.problem("service systemd needs nodes: the addresses of every node of the NVLink domain")
    if nodes and service != "systemd":
        raise value.problem(f"nodes are for service systemd; with {service} gpucheck writes no list")
    return msgspec.convert({"service": "none" if service == "auto" else service, "nodes": nodes}, Imex)


def _nodes(value: Value) -> tuple[str, ...]:
    return tuple(_address(row) for row in value.items(MOST_NODES))


def _address(value: Value) -> str:
    text = value.text().strip()
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise _no_address(value, text) from None


def _no_address(value: Value, text: str) -> InputProblem:
    return value.problem(f"{text!r} is not an IP address; the daemon needs addresses, one for each node")


def imex_service(spec: Imex) -> dict[str, Any]:
    """Return the row of the plan. leave: the program that starts it for a job also stops it."""
    if spec.service == "systemd":
        return {"name": SERVICE, "enabled": True, "state": "started"}
    return {"name": SERVICE, "enabled": False, "state": "stopped" if spec.service == "none" else "leave"}


def imex_files(spec: Imex) -> Iterator[tuple[str, str]]:
    """Yield (path, content) of the list of nodes, if gpucheck writes one."""
    if spec.service == "systemd":
        yield NODES, "".join(f"{node}\n" for node in spec.nodes)
