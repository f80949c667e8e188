"""The plan that provisioning writes to a host, ``gpucheck.plan/1``: the parts that are compared with the host."""

from typing import Literal

import msgspec

PLAN = "/etc/gpucheck/stack.json"


class Package(msgspec.Struct, frozen=True):
    """A planned package. version: None for the newest of its repository."""

    name: str
    version: str | None


class Component(msgspec.Struct, frozen=True):
    """The packages of a component, and the names of those that are held."""

    packages: tuple[Package, ...]
    holds: tuple[str, ...] = ()


class Unconfirmed(msgspec.Struct, frozen=True):
    """A name or version of the plan that no published record of the repositories shows."""

    component: str
    spec: str
    because: str = ""


class Expected(msgspec.Struct, frozen=True):
    """What runs once the plan is carried out; None where the plan leaves it open."""

    driver_version: str | None = None
    kernel_module: str | None = None
    fabric_manager_version: str | None = None


class Framework(msgspec.Struct, frozen=True):
    """A planned framework. origin: ``index`` for wheels of its own index, which carry the build in their version."""

    version: str | None = None
    origin: str | None = None
    build: str | None = None


class Stack(msgspec.Struct, frozen=True):
    """The planned frameworks."""

    torch: Framework | None = None
    tensorflow: Framework | None = None


class Plan(msgspec.Struct, frozen=True, rename={"schema_": "schema"}):
    """The parts of a host's plan that are compared here."""

    schema_: Literal["gpucheck.plan/1"]
    components: dict[str, Component]
    expected: Expected | None = None
    stack: Stack | None = None
    unconfirmed: tuple[Unconfirmed, ...] = ()


class Unreadable(ValueError):
    """The text is not a plan."""


def read_plan(text: str) -> Plan:
    """Return the plan that provisioning recorded. Raises Unreadable."""
    try:
        return msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error
