"""Causes: what is wrong, how to make sure, what to do (causes.yml)."""

import shlex
from collections.abc import Iterable, Mapping
from functools import partial
from string import Formatter
from typing import Any, Literal, get_args

import msgspec

from gpucheck.knowledge._load import Table, TableRow, table
from gpucheck.model.finding import GOOD, Action, Finding, Owner, Step, Verdict


class Advice(TableRow, frozen=True, kw_only=True):
    """One step: do or look are words, change or run a command. do and change alter the host, look and run do not."""

    do: str | None = None
    look: str | None = None
    change: str | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        if sum(text is not None for text in (self.do, self.look, self.change, self.run)) != 1:
            raise ValueError("a step has one of the keys do, look, change, run")

    @property
    def text(self) -> str:
        return self.do or self.look or self.change or self.run or ""


class _Words(Formatter):
    """Values in a sentence: a list with commas, an unknown value as the word."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(super(_Words, self).format_field(one, format_spec) for one in value)
        if value is None:
            return "unknown"
        return str(super().format_field(value, format_spec))


class _Shell(_Words):
    """Values in a command: a text from elsewhere cannot become a second command."""

    def format_field(self, value: Any, format_spec: str) -> str:
        text = super().format_field(value, format_spec)
        return text if isinstance(value, int | float) else shlex.quote(text) if text else "''"


WORDS, SHELL = _Words(), _Shell()


def step_of(advice: Advice, values: Mapping[str, Any]) -> Step:
    """Return the step with these values. Raises KeyError for one that is missing."""
    changes = advice.do is not None or advice.change is not None
    if advice.do is not None or advice.look is not None:
        return Step(text=WORDS.vformat(advice.text, (), values), changes=changes)
    return Step(command=SHELL.vformat(advice.text, (), values), changes=changes)


def fix_of(steps: Iterable[Step]) -> str:
    """Return the steps as one text: a step that ends with a colon introduces the next."""
    text = ""
    for step in steps:
        between = " " if text.endswith(":") else "; " if text else ""
        text += between + (step.command or step.text or "")
    return text


Domain = Literal["gpu", "nvlink", "pcie", "network", "driver", "host", "job"]


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause. meaning: one line; confirm: how to make sure; steps: what to do; source: who reported it.

    decide: a command that shows it and changes nothing.
    action: the first of the steps that changes anything, for programs. owner: who carries it out. domain: what
    is affected.
    """

    meaning: str
    confirm: str
    steps: tuple[Advice, ...]
    action: Action
    owner: Owner
    domain: Domain
    source: str
    decide: str | None = None

    @property
    def advice(self) -> tuple[Step, ...]:
        """The steps as a finding has them; those of a cause have no values."""
        return tuple(step_of(step, {}) for step in self.steps)


class _Causes(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.causes/2"]
    causes: dict[str, Cause]


def causes() -> dict[str, Cause]:
    """Every cause by its key. The keys are an outside contract and are never renamed."""
    return dict(table("causes.yml", _Causes).causes)


# These interrupt jobs or take a part out: not on the evidence of a check that could not look.
DISRUPTIVE: frozenset[Action] = frozenset({"reset-gpu", "reboot", "power-cycle", "replace"})


def with_actions(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with their action and owner.

    A finding that states its action keeps it, unless the evidence does not support it: a part is replaced on certain
    evidence only, and UNKNOWN interrupts no job unless its cause is certain. A pass or a skip asks for nothing. WARN
    and FAIL without a known cause need a person.
    """
    known = causes()
    return tuple(_with_action(finding, known.get(finding.cause or "")) for finding in findings)


def _with_action(finding: Finding, cause: Cause | None) -> Finding:
    owner = finding.owner or (cause.owner if cause else "node")
    if finding.verdict in GOOD:
        action: Action = "none"
    elif finding.action or cause:
        action = _supported(finding.action or (cause.action if cause else "none"), finding)
    else:
        action = "none" if finding.verdict is Verdict.UNKNOWN else "contact-support"
    if (finding.action, finding.owner) == (action, owner):
        return finding
    return msgspec.structs.replace(finding, action=action, owner=owner)


def _supported(action: Action, finding: Finding) -> Action:
    if finding.confidence == "certain":
        return action
    if finding.verdict is Verdict.UNKNOWN:
        return "none" if action in DISRUPTIVE else action
    return "contact-support" if action == "replace" else action


class RootCauses(Table, frozen=True, kw_only=True):
    """Which finding about a fault leads.

    evidence: checks by what they look at, nearest to the hardware first. apart: checks whose findings are never part
    of another fault. explains: by cause, the causes that follow from it, and checks whose findings without a cause do.
    """

    schema_: Literal["gpucheck.knowledge.root_causes/1"]
    evidence: dict[str, tuple[str, ...]]
    apart: tuple[str, ...]
    explains: dict[str, tuple[str, ...]]


root_causes = partial(table, "root_causes.yml", RootCauses)


class _Suspects(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.suspects/1"]
    patterns: dict[str, tuple[str, ...]]


def suspects_of(pattern: str) -> tuple[str, ...]:
    """Return the causes that may be behind slow, wrong or hung copies of this pattern, the most frequent first."""
    return table("suspects.yml", _Suspects).patterns[pattern]


ACTIONS: tuple[Action, ...] = get_args(Action)


class Meaning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One action. means: as text. The other fields name it as NVSentinel, gpud and so on do; None: they have none.

    nvsentinel_vm: in a virtual machine. slurm: what to do with the node until the action is done.
    """

    means: str
    nvsentinel: str
    nvsentinel_vm: str
    gpud: str
    health_validation: str
    nvml: str | None
    slurm: Literal["nothing", "drain", "down"]


class _Actions(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.actions/1"]
    actions: dict[Action, Meaning]
    recovery_actions: dict[str, Action]


_table = partial(table, "actions.yml", _Actions)


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
