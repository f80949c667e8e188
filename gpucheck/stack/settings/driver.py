"""What the specification adds to the driver: its components (NVENC, MPS, OpenGL and others), options and MOK.

The components are of the driver's version. MOK: the key that signs the module where secure boot is on.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from gpucheck.knowledge.packages import DriverExtra, options
from gpucheck.knowledge.strict import Value, did_you_mean
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import Package, PlanGap, at_driver_version, fabric_packages
from gpucheck.stack.types import StackSet

MOST = 16


def read_driver_extra(value: Value) -> tuple[str, ...]:
    """Read ``none``, or a list of components, sorted. Raises InputProblem with the line."""
    if not value.is_list:
        value.word("none", "auto")
        return ()
    found = set()
    for row in value.items(MOST):
        name = row.text().strip()
        if name not in options().driver_extra:
            raise row.problem(f"{name!r} is not a driver component. {did_you_mean(name, options().driver_extra)}")
        found.add(name)
    return tuple(sorted(found))


def extra_packages(system: OperatingSystem, stack: StackSet, names: tuple[str, ...]) -> list[Package]:
    """Return the packages of these components, at the driver's version. Raises PlanGap if names are unknown."""
    found: dict[str | None, Package] = {}
    for name in names:
        for package in _packages(system, stack, name):
            found[package["name"]] = package
    return list(found.values())


def _packages(system: OperatingSystem, stack: StackSet, name: str) -> list[Package]:
    branch, part = stack.driver.branch, options().driver_extra.get(name)
    row = _row(part, system, branch) if part else None
    if row is None:
        raise PlanGap(
            f"the packages of driver_extra {name} on {system.name} with driver branch {branch} are not known",
            "cuda-repo",
            f"driver_extra without {name} in stack.yml",
        )
    known = [package.format(branch=branch) for package in row]
    if part and part.fabric:
        return fabric_packages(system, stack, known)
    return [at_driver_version(system, stack, package) for package in known]


def _row(part: DriverExtra, system: OperatingSystem, branch: str) -> tuple[str, ...] | None:
    for row in part.packages:
        if system.os_id in row.os and int(row.branches.first) <= int(branch) <= int(row.branches.last):
            return row.names
    return None


MODULE_OPTIONS = "/etc/modprobe.d/gpucheck-nvidia.conf"
NAME = re.compile(r"NVreg_[A-Za-z0-9]+")
# Forms that the driver documents: numbers, words, and lists such as PeerMappingOverride=1;Another=0x10.
VALUE = re.compile(r"[\w.,:;=+-]+")


def read_module_options(value: Value) -> dict[str, str]:
    """Read ``none``, or options by name. Raises InputProblem with the line."""
    if not value.is_mapping:
        value.word("none", "auto")
        return {}
    found = {}
    for name, inner in value.pairs():
        if not NAME.fullmatch(name):
            raise inner.problem("is not an nvidia module option: these begin with NVreg_ (modinfo nvidia lists them)")
        text = inner.text().strip()
        if not VALUE.fullmatch(text):
            raise inner.problem(f"{text!r} is not valid in a modprobe file: use a number, a word, or name=value;...")
        found[name] = text
    return found


def options_line(options: dict[str, str]) -> str:
    """Return the line of modprobe.d, ``options nvidia NVreg_A=1 NVreg_B="x=1;y=2"``."""
    words = (f"{name}={value}" if value.isalnum() else f'{name}="{value}"' for name, value in sorted(options.items()))
    return f"options nvidia {' '.join(words)}\n"


MOK = "/etc/dkms/framework.conf.d/gpucheck-mok.conf"
# DKMS reads its settings with a shell.
SAFE = re.compile(r"/[A-Za-z0-9._/+-]+")


class Mok(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """stack.yml's ``mok``: paths on the hosts, both or neither. certificate: DER, as mokutil needs it."""

    key: str | None = None
    certificate: str | None = None


def read_mok(value: Value) -> Mok:
    """Read ``none``, or ``key`` and ``certificate``. Raises InputProblem with the line."""
    if not value.is_mapping:
        value.word("none", "auto")
        return Mok()
    found = value.fields({"key": host_path, "certificate": host_path})
    lacking = [name for name in ("key", "certificate") if name not in found]
    if lacking:
        raise value.problem(f"{lacking[0]} is missing: DKMS signs with a key and its certificate")
    return Mok(**found)


def host_path(value: Value) -> str:
    """A path of a file on the hosts. Raises InputProblem with the line."""
    text = value.text().strip()
    if not SAFE.fullmatch(text):
        raise value.problem(f"{text!r} is not an absolute path of letters, digits and . _ + - on the hosts")
    return text


def mok_file(mok: Mok) -> str:
    return f"mok_signing_key={mok.key}\nmok_certificate={mok.certificate}\n"


# The list must be the same on every node of a domain. Slurm's prolog writes it for each job and starts the daemon.
# NVIDIA's DRA driver runs its daemon in a container, and a second one on the host would conflict with it.
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
        why = f"{text!r} is not an IP address; the daemon needs addresses, one for each node"
        raise value.problem(why) from None


def imex_service(spec: Imex) -> dict[str, Any]:
    """Return the row of the plan. leave: the program that starts it for a job also stops it."""
    if spec.service == "systemd":
        return {"name": SERVICE, "enabled": True, "state": "started"}
    return {"name": SERVICE, "enabled": False, "state": "stopped" if spec.service == "none" else "leave"}


def imex_files(spec: Imex) -> Iterator[tuple[str, str]]:
    """Yield (path, content) of the list of nodes, if gpucheck writes one."""
    if spec.service == "systemd":
        yield NODES, "".join(f"{node}\n" for node in spec.nodes)
