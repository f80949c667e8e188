"""Names that a shell completes. What is read is imported when a shell asks; an error completes nothing."""

import re
from collections.abc import Callable, Mapping

import click
from click.shell_completion import CompletionItem

BOARD = re.compile(r"[A-Z]+\d+[\w-]*")  # P100-PCIE-16GB, not 80GB
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(names: Callable[[str], Mapping[str, str]], *, file: str = "") -> Completer:
    """Return a completer of an option. names: of what was typed, each with its description. file: characters of one."""

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        if set(file) & set(typed):
            return [CompletionItem(typed, type="file")]
        try:
            found = names(typed).items()
        except Exception:  # a shell shows a message in the middle of the line that is typed
            return []
        return [CompletionItem(name, help=about or None) for name, about in sorted(found) if name.startswith(typed)]

    return complete


def _profiles(_: str) -> dict[str, str]:
    from gpucheck.simulator import load, profile_names

    return {name: load(name).summary for name in profile_names()}


def _faults(_: str) -> dict[str, str]:
    from gpucheck.simulator import all_faults

    return {fault.name: fault.summary for fault in all_faults()}


def _steps(_: str) -> dict[str, str]:
    """Names and tags."""
    from gpucheck.run import verification as run

    steps = run.all_steps()
    return {tag: "" for step in steps for tag in sorted(step.tags)} | {step.name: step.about for step in steps}


def _explained(typed: str) -> dict[str, str]:
    """Checks and causes; codes of findings, which are many, after their first part."""
    from gpucheck.knowledge import causes
    from gpucheck.knowledge.codes import rows
    from gpucheck.run import verification as run

    names = {step.name: step.about for step in run.all_steps()}
    names |= {name: cause.meaning for name, cause in causes().items()}
    return names | ({name: row.why for name, row in rows()} if "." in typed else {})


def _kinds(_: str) -> dict[str, str]:
    """Kinds of output that diagnose reads."""
    from gpucheck.imports import all_kinds

    return {kind.name: kind.title for kind in all_kinds()}


def _gpus(typed: str) -> dict[str, str]:
    """Names without blanks, which shells do not complete well: ``P100-PCIE-16GB``, ``8xH100``."""
    from gpucheck.knowledge import gpus

    count = re.match(r"(\d+x)?", typed)[0]  # type: ignore[index]  # it matches everything
    names = {word: gpu.name for gpu in gpus() for word in (*gpu.aliases, *gpu.name.split()) if BOARD.fullmatch(word)}
    return {f"{count}{name}": title for name, title in names.items()}


def _systems(_: str) -> dict[str, str]:
    from gpucheck.knowledge import tables

    return {system.id: "" for system in tables.operating_systems().systems}


def _variants(_: str) -> dict[str, str]:
    from gpucheck.images.versions import read_versions
    from gpucheck.lab.model import checkout

    return dict.fromkeys(read_versions(checkout()).variants, "")


PROFILE, FAULT, STEP = completer(_profiles, file="/."), completer(_faults), completer(_steps)
EXPLAINED, KIND, VARIANT = completer(_explained), completer(_kinds), completer(_variants)
GPU, SYSTEM = completer(_gpus), completer(_systems)
