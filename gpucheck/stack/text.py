"""Results of the resolver as text: the set first, then the reasons, then the unconfirmed ones."""

import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from gpucheck.knowledge import tables
from gpucheck.knowledge.tables import torch as torch_table
from gpucheck.printable import of_printable
from gpucheck.stack import components, rules
from gpucheck.stack.components import COMPONENTS
from gpucheck.stack.lock import Lock, LockedGroup
from gpucheck.stack.plan.parts import reasons as unconfirmed_reasons
from gpucheck.stack.resolve import counted
from gpucheck.stack.rules.driver import r15_newer_kernel
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import Conflict, Reason, Refusal

if TYPE_CHECKING:
    from gpucheck.stack.plan import Plan

# Columns of a file or a pipe, and the fewest that are used of a terminal.
WIDTH, LEAST = 110, 50


def rows(stack: StackSet) -> list[tuple[str, str]]:
    """Return component and value, in the order of the layers."""
    found = ((component.title, component.label(stack)) for component in COMPONENTS)
    return [(title, label) for title, label in found if label is not None]


@of_printable
def stack_text(stack: StackSet) -> str:
    """Return the set as a table, then the reasons."""
    lines = [f"{counted(stack.gpus)} on {stack.os} ({stack.arch})", "", *_table(rows(stack)), ""]
    unconfirmed = unconfirmed_reasons(stack.unconfirmed) if stack.unconfirmed else ()
    return "\n".join([*lines, *_pip(stack), *_reasons((*stack.reasons, *unconfirmed))])


def _pip(stack: StackSet) -> list[str]:
    torch, tensorflow, lines = stack.torch, stack.tensorflow, []
    if torch and torch.origin == "pypi":
        lines += [f"  pip install torch=={torch.version}"]
    elif torch:
        lines += [f"  pip install torch=={torch.version}+{torch.build} --index-url {torch_table().index}{torch.build}"]
    if tensorflow:
        pins = "".join(f" {pin}" for pin in tensorflow.constraints)
        lines += [f"  pip install 'tensorflow[and-cuda]=={tensorflow.version}'{pins}"]
    return ["pip", *lines, ""] if lines else []


def _table(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    pairs = list(pairs)
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        yield f"  {name:<{width}}  {value}"


def _reasons(reasons: tuple[Reason, ...]) -> Iterator[str]:
    certain = [reason for reason in reasons if reason.confirmed]
    unsure = [reason for reason in reasons if not reason.confirmed]
    for title, chosen in (("why", certain), ("not confirmed: check before you rely on it", unsure)):
        if chosen:
            yield title
        for reason in chosen:
            mark = f"  [{reason.rule}]" if reason.rule else ""
            yield from _wrapped(f"{reason.component}: ", f"{reason.because}{mark}")
    if any(reason.rule for reason in reasons):
        yield "rules R1, R2, ... and their sources: gpucheck stack rules"


def _width() -> int:
    return max(LEAST, get_terminal_size().columns) if sys.stdout.isatty() else WIDTH


def _wrapped(label: str, text: str) -> list[str]:
    whole: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
    return textwrap.wrap(label + text, _width(), initial_indent="  ", subsequent_indent="    ", **whole)


@of_printable
def refusal_text(refusal: Refusal) -> str:
    """Return the conflict, its two facts, and the change that works."""
    return "\n".join(line for conflict in refusal.conflicts for line in conflict_lines(conflict))


def conflict_lines(conflict: Conflict, subject: str = "CONFLICT") -> Iterator[str]:
    yield f"{subject}  {conflict.because}"
    for fact in conflict.between:
        yield from textwrap.wrap(
            f"{fact.fact}  [{fact.source}]", _width(), initial_indent="  fact  ", subsequent_indent="        "
        )
    yield f"  fix   {conflict.try_}"


@of_printable
def refused_text(lock: Lock) -> Iterator[str]:
    for host, refused in lock.refused.items():
        for conflict in refused.conflicts:
            yield from conflict_lines(conflict, f"UNSUPPORTED {host}")


@of_printable
def kernel_warnings(lock: Lock) -> Iterator[str]:
    """Yield hosts' kernels that the driver of their group was not seen to build on."""
    for name, group in lock.groups.items():
        if group.stack.source is None:
            for reason in r15_newer_kernel(group.stack.driver.branch, (host.kernel for host in group.hosts.values())):
                yield f"WARNING {name}: {reason.because}"


@of_printable
def lock_changes(previous: Lock | None, made: Lock) -> Iterator[str]:
    before = previous.groups if previous else {}
    for name in sorted({*before, *made.groups}):
        old, new = before.get(name), made.groups.get(name)
        if new is None:
            yield f"{name}: removed"
        elif old is None:
            yield f"{name}: new, {_brief(new)}"
        else:
            yield from (f"{name}: {change}" for change in _differences(old, new))
    if previous and previous.spec != made.spec:
        yield "the specification changed"
    if previous and previous.refused != made.refused:
        yield f"unsupported hosts: {', '.join(made.refused) or 'none'}"


def _brief(group: LockedGroup) -> str:
    driver = group.stack.driver
    hosts = f"{len(group.hosts)} host{'s' if len(group.hosts) > 1 else ''}"
    return f"{hosts}, driver {driver.version} {driver.kernel_module}, CUDA {group.stack.cuda or 'none'}"


def _differences(old: LockedGroup, new: LockedGroup) -> Iterator[str]:
    olds, news = dict(rows(old.stack)), dict(rows(new.stack))
    for part in dict.fromkeys((*olds, *news)):
        if olds.get(part) != news.get(part):
            yield f"{part} {olds.get(part, 'none')} -> {news.get(part, 'none')}"
    joined, left = sorted(set(new.hosts) - set(old.hosts)), sorted(set(old.hosts) - set(new.hosts))
    if joined:
        yield f"hosts added: {', '.join(joined)}"
    if left:
        yield f"hosts removed: {', '.join(left)}"
    moved = sorted(host for host in set(new.hosts) & set(old.hosts) if new.hosts[host] != old.hosts[host])
    if moved:
        yield f"kernel or simulated components changed: {', '.join(moved)}"


@of_printable
def plan_text(plan: "Plan") -> str:
    lines = [f"{plan.group}: {', '.join(plan.hosts) or 'a described host, without what depends on its kernel'}", ""]
    own = ("  those of the hosts; none are added",) if plan.sources else ()
    lines += ["repositories", *own, *(f"  {r['name']}  {r['url']}" for r in plan.repositories)]
    if plan.archive:
        lines += [f"  the host's own sources of {plan.archive['suite']}, with {', '.join(plan.archive['components'])}"]
    lines += [""]
    if plan.module_stream:
        lines += [f"module stream  {plan.module_stream['module']}:{plan.module_stream['stream']}", ""]
    lines += ["packages, all held at these versions"]
    for name, component in plan.components.items():
        specs = [package["spec"] for package in component["packages"]]
        lines += [f"  {name.replace('_', ' ')}", *(f"    {spec}" for spec in specs or ["none"])]
    if plan.kernel_modules:
        names, pattern = plan.kernel_modules["packages"], plan.kernel_modules["pattern"]
        flavor = f"{pattern.replace('{kernel}', '{flavor}')}, of the flavor of the host's kernel metapackage"
        lines += ["", "kernel modules, built by the distribution", *(f"  {name}" for name in (*names, flavor))]
    none = "none" if plan.hosts or plan.kernel_modules else "those of the host's kernel"
    lines += ["", "kernel headers", *(f"  {name}" for name in plan.headers or (none,))]
    if plan.header_metapackage:
        lines += [f"  {plan.header_metapackage}, of the flavor of the host's kernel metapackage"]
    lines += ["", "compilers", *(f"  {name}" for name in plan.compilers or ("none",))]
    if plan.dkms_source:
        row, enabled = plan.dkms_source["repository"], plan.dkms_source["enable"]
        lines += [
            "",
            f"{' '.join(row['include'])}, if no source of the hosts has it, from {row['name']}  {row['url']}",
            f"  with {' '.join(enabled)} enabled for the installation",
        ]
    if plan.python.get("packages"):
        lines += ["", f"gpucheck runs on {plan.python['interpreter']}, from {' '.join(plan.python['packages'])}"]
    lines += ["", "files", *(f"  {file['path']}" for file in plan.files)]
    if plan.container_engines:
        files = (f"  {row['name']}: {' '.join(row['files'])}" for row in plan.container_engines)
        lines += ["", "container engines to configure for the NVIDIA runtime, if installed", *files]
    lines += ["", "kernel packages held: upgrades keep their versions"] if plan.kernel_lock else []
    if plan.tuning:
        lines += ["", "tuning", *(f"  {file['path']}" for file in plan.tuning["files"])]
        boot = plan.tuning.get("boot")
        lines += [f"  kernel arguments {' '.join(boot['arguments'])}"] if boot else []
    services = [*plan.services, *(row for part in plan.components.values() for row in part.get("services", ()))]
    lines += ["", "services", *(f"  {_service(service)}" for service in services)]
    lines += ["", f"order  {', '.join(plan.order)}", f"reboot when {', '.join(plan.reboot['when'])}", ""]
    return "\n".join([*lines, *_pip(plan.stack), *_reasons((*plan.stack.reasons, *plan.reasons))])


def _service(row: dict[str, Any]) -> str:
    return str(row["name"]) if row["enabled"] else f"{row['name']}, not enabled"


@of_printable
def group_line(name: str, group: "LockedGroup", unconfirmed: int = 0) -> str:
    """Return one group as a line: the number of hosts, and their set. unconfirmed: rows of its plan."""
    words = ", ".join(f"{part} {value}" for part, value in rows(group.stack) if value != "none")
    count = f"{len(group.hosts)} host{'' if len(group.hosts) == 1 else 's'}"
    note = f"; {unconfirmed} unconfirmed (gpucheck stack plan --group {name})" if unconfirmed else ""
    return f"{name} ({count}): {words}{note}"


STATEMENT = re.compile(r"\b(R\d+): ")
HEAD = """<!-- Made by: gpucheck stack rules -o docs/stack-rules.md -->
# Rules of the stack

Every set that `gpucheck stack` prints satisfies these rules. Every conflict names the rule that forbids a set and the
two facts that contradict each other. `gpucheck stack resolve --want COMPONENT=VERSION` shows
whether a version is possible, and if not, why. Tables as of {as_of}.
"""


def rules_page() -> str:
    """Return the page as Markdown. Raises KnowledgeError for an invalid table."""
    sentences: dict[str, list[tuple[str, str]]] = {}
    for rule, where, sentence in statements():
        sentences.setdefault(rule, []).append((where, sentence))
    lines = [HEAD.format(as_of=tables.operating_systems().as_of)]
    for rule, row in tables.rules().items():
        lines += [f"## {rule}: {row.title}", ""]
        lines += [f"- {sentence} (`{where}`)" for where, sentence in sentences[rule]]
        note = f" ({row.note})" if row.note else ""
        lines += ["", f"Source{note}: {'; '.join(map(_source, row.source))}."]
        lines += [f"Data: {', '.join(f'`gpucheck/knowledge/{name}.yml`' for name in row.tables)}.", ""]
    return "\n".join(lines)


def statements() -> Iterator[tuple[str, str, str]]:
    """Yield the statements of the docstrings: the rule, the function, and its statement in one line."""
    packages = (rules, components)
    names = [f"{package.__name__}.{row.name}" for package in packages for row in pkgutil.iter_modules(package.__path__)]
    for module in map(importlib.import_module, names):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ != module.__name__:
                continue
            _, *parts = STATEMENT.split(inspect.getdoc(function) or "")
            for rule, text in zip(parts[::2], parts[1::2], strict=True):
                sentence = " ".join(text.split())
                yield rule, name, sentence[:1].upper() + sentence[1:]


def _source(identifier: str) -> str:
    source = tables.sources()[identifier]
    what = " ".join(source.what.split()).rstrip(".")
    return f"[{what}]({source.url})" if source.url else what
