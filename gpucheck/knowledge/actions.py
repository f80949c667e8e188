"""Actions: what a finding asks for, by the names of the systems that act on hosts (actions.yml)."""

from functools import cache
from typing import Literal, get_args

import msgspec

from gpucheck.knowledge._load import Table, table
from gpucheck.model.finding import Action, Owner

ACTIONS: tuple[Action, ...] = get_args(Action)


class Meaning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One action. means: as text. The other fields name it as NVSentinel, gpud and so on do; None: they have none.

    nvsentinel_vm: in a virtual machine. slurm: what to do with the node until the action is done. condition: whether
    the Kubernetes node condition of the cause's domain becomes True.
    """

    means: str
    nvsentinel: str
    nvsentinel_vm: str
    gpud: str
    health_validation: str
    nvml: str | None
    slurm: Literal["nothing", "drain", "down"]
    condition: bool


class _Actions(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.actions/1"]
    actions: dict[Action, Meaning]
    recovery_actions: dict[str, Action]
    conditions: dict[str, str | None]


def actions() -> dict[Action, Meaning]:
    """Every action, the mildest first. Raises KnowledgeError if the file is damaged."""
    known = _table().actions
    return {action: known[action] for action in ACTIONS}


def of_host(action: Action, owner: Owner) -> Action:
    """Return what an action means for the host: nothing, where the owner of the job carries it out."""
    return "none" if owner == "user" else action


def of_recovery_action(name: str) -> Action:
    """Return the action for one of NVML's recovery actions; one that is newer than the table needs a person."""
    return _table().recovery_actions.get(name, "contact-support")


def conditions() -> dict[str, str | None]:
    """Kubernetes node condition by domain of a cause."""
    return dict(_table().conditions)


@cache
def _table() -> _Actions:
    return table("actions.yml", _Actions)
