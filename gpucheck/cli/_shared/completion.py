"""Names that a shell completes. What is read is imported when a shell asks; an error completes nothing."""

import re
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

BOARD = re.compile(r"[A-Z]+\d+[\w-]*")  # P100-PCIE-16GB, not 80GB
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(names: Callable[[str], Iterable[CompletionItem]]) -> Completer:
    """Return a completer of an option from the items that fit what was typed."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            return list(names(incomplete))
        except Exception:  # a shell shows a message in the middle of the line that is typed
            return []

    return complete


def matching(names: Iterable[tuple[str, str]], begin: str) -> Iterable[CompletionItem]:
    """Return the names that begin so, with their descriptions."""
    return (CompletionItem(name, help=about or None) for name, about in names if name.startswith(begin))


def _profile(incomplete: str) -> Iterable[CompletionItem]:
    """A name, or a file."""
    if "/" in incomplete or "." in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return matching(_profiles(), incomplete)


def _fault(incomplete: str) -> Iterable[CompletionItem]:
    from gpucheck.simulator import all_faults

    return matching(((fault.name, fault.summary) for fault in all_faults()), incomplete)


def _step(incomplete: str) -> Iterable[CompletionItem]:
    """Names and tags."""
    from gpucheck.run import verification as run

    steps = run.all_steps()
    names = {tag: "" for step in steps for tag in sorted(step.tags)} | {step.name: step.about for step in steps}
    return matching(sorted(names.items()), incomplete)


def _explained(incomplete: str) -> Iterable[CompletionItem]:
    """Checks and causes; codes of findings, which are many, after their first part."""
    from gpucheck.knowledge import causes
    from gpucheck.knowledge.codes import rows
    from gpucheck.run import verification as run

    names = {step.name: step.about for step in run.all_steps()}
    names |= {name: cause.meaning for name, cause in causes().items()}
    names |= {name: row.why for name, row in rows()} if "." in incomplete else {}
    return matching(sorted(names.items()), incomplete)


def _kind(incomplete: str) -> Iterable[CompletionItem]:
    """Kinds of output that diagnose reads."""
    from gpucheck.imports import all_kinds

    return matching(sorted({kind.name: kind.title for kind in all_kinds()}.items()), incomplete)


def _gpu(incomplete: str) -> Iterable[CompletionItem]:
    """Names without blanks, which shells do not complete well: ``P100-PCIE-16GB``, ``8xH100``."""
    from gpucheck.knowledge import gpus

    count = re.match(r"(\d+x)?", incomplete)[0]  # type: ignore[index]  # it matches everything
    names = {word: gpu.name for gpu in gpus() for word in (*gpu.aliases, *gpu.name.split()) if BOARD.fullmatch(word)}
    return matching(((f"{count}{name}", title) for name, title in sorted(names.items())), incomplete)


def _system(incomplete: str) -> Iterable[CompletionItem]:
    from gpucheck.knowledge import tables

    return matching(sorted((system.id, "") for system in tables.operating_systems().systems), incomplete)


def _variant(incomplete: str) -> Iterable[CompletionItem]:
    from gpucheck.images.versions import read_versions
    from gpucheck.lab.model import checkout

    return matching(((name, "") for name in read_versions(checkout()).variants), incomplete)


def _profiles() -> Iterable[tuple[str, str]]:
    from gpucheck.simulator import load, profile_names

    return [(name, load(name).summary) for name in profile_names()]


PROFILE = completer(_profile)
FAULT = completer(_fault)
STEP = completer(_step)
EXPLAINED = completer(_explained)
VARIANT = completer(_variant)
KIND, GPU, SYSTEM = completer(_kind), completer(_gpu), completer(_system)
