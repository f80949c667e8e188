"""The catalogue of codes (codes/*.yml): what each finding means, and what to do about it.

A finding is a code with values. Its sentences are written here and nowhere else, so two findings are equal if their
codes and values are. The part of a code before the dot is the name of its file: ``pcie.width-reduced``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gpucheck.knowledge._load import FOLDER, TableRow, table
from gpucheck.knowledge.causes import WORDS, Advice, causes, fix_of, step_of
from gpucheck.model.finding import (
    Action,
    Alternative,
    Confidence,
    Finding,
    Owner,
    Step,
    Value,
    Verdict,
    bus_ids,
)

# An option of nvidia-smi that takes several GPUs, and is left out where all are meant.
OF_GPUS = re.compile(r" (?:-i |--id=)\{gpu\}")
# Where a command takes one GPU and several have the same finding.
ONE_OF_SEVERAL = "BUS_ID"
# In the place of a check: all of them.
ANY = "any"
CONFIRM = "{decide}"  # a step: the command that confirms the cause of the finding


class Code(TableRow, frozen=True, kw_only=True):
    """The words of one code; values are in braces, ``{gpu}`` and ``{peer}`` are the GPUs of the subject.

    cause, confidence, action, owner: of its findings, where the rule does not state another. or_causes: what a check
    may state instead. then_cause: the steps of the cause follow; without steps of its own a code has those of its
    cause. of_table: the row of a table that a rule passes has steps, which follow, and perhaps a cause.
    """

    why: str
    steps: tuple[Advice, ...] = ()
    then_cause: bool = False
    of_table: bool = False
    cause: str | None = None
    or_causes: tuple[str, ...] = ()
    confidence: Confidence = "certain"
    action: Action | None = None
    owner: Owner | None = None


class Reported(TableRow, frozen=True, kw_only=True):
    """The codes that a check may report, by verdict."""

    fail: tuple[str, ...] = ()
    warn: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def of(self, verdict: Verdict) -> tuple[str, ...]:
        return getattr(self, verdict.value, ())


class _Codes(TableRow, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """checks: what each check of a host reports of this file; ``any`` is every check. Measurements have no entry."""

    schema_: Literal["gpucheck.knowledge.codes/1"]
    checks: dict[str, Reported] = msgspec.field(default_factory=dict)
    codes: dict[str, Code]


def groups() -> tuple[str, ...]:
    """Return the names of the files of the catalogue."""
    return tuple(sorted(path.stem for path in (FOLDER / "codes").glob("*.yml")))


def codes(group: str) -> dict[str, Code]:
    """Return the codes of one file, without its name. Raises KnowledgeError."""
    return _file(group).codes


def _file(group: str) -> _Codes:
    return table(f"codes/{group}.yml", _Codes)


def reporting(code: str) -> list[tuple[str, Verdict]]:
    """Return the checks of a host that may report a code, each with the verdict; ``any`` is every check."""
    group, _, name = code.partition(".")
    checks = _file(group).checks
    return [(check, verdict) for check, own in checks.items() for verdict in Verdict if name in own.of(verdict)]


def reported(check: str) -> dict[Verdict, tuple[str, ...]]:
    """Return the codes that a check of a host may report, worst verdict first; without those of any check."""
    own = {group: _file(group).checks.get(check, Reported()) for group in groups()}
    by_verdict = {
        verdict: tuple(f"{group}.{name}" for group, found in own.items() for name in found.of(verdict))
        for verdict in (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.SKIP)
    }
    return {verdict: found for verdict, found in by_verdict.items() if found}


def causes_of(check: str) -> tuple[str, ...]:
    """Return the causes that a check may name, without those of its tables."""
    every = (code_of(code) for found in reported(check).values() for code in found)
    return tuple(sorted({cause for row in every for cause in (row.cause, *row.or_causes) if cause}))


def code_of(name: str) -> Code:
    """Return the row of ``pcie.width-reduced``. Raises KeyError if there is none."""
    group, _, rest = name.partition(".")
    return codes(group)[rest]


def known(name: str | None) -> bool:
    """Return whether the catalogue of this version has the code; a report of another one may name others."""
    group, _, rest = (name or "").partition(".")
    return group in groups() and rest in codes(group)


def words_of(
    code: str, subject: str, values: Mapping[str, Any], *, cause: str | None, advice: tuple[Advice, ...] = ()
) -> tuple[str, tuple[Step, ...]]:
    """Return why and the steps of a code, then those of a table's row, then those of the cause if the code asks.

    Raises KeyError for an unknown code, and for a value that they need and that is not there.
    """
    row = code_of(code)
    words = {**dict(zip(("gpu", "peer"), map(_option, bus_ids(subject)), strict=False)), **values}
    return WORDS.vformat(row.why, (), words), tuple(step_of(one, words) for one in _advice(row, cause, advice))


def _advice(row: Code, cause: str | None, advice: tuple[Advice, ...] = ()) -> tuple[Advice, ...]:
    own = (*row.steps, *advice)
    if cause is None:
        return own
    own = tuple(
        Advice(run=causes()[cause].decide or f"gpucheck explain {cause}") if one.run == CONFIRM else one for one in own
    )
    return (*own, *causes()[cause].steps) if row.then_cause or not own else own


def followed_by(finding: Finding, name: str) -> Finding:
    """Return the finding with the steps of another code, which has no values, after its own."""
    steps = (*finding.steps, *words_of(name, "", {}, cause=None)[1])
    return msgspec.structs.replace(finding, steps=steps, fix=fix_of(steps))


def of_several(finding: Finding, ids: Sequence[str], *, every_gpu: bool) -> tuple[str, tuple[Step, ...]]:
    """Return why and steps for several GPUs with equal findings.

    ids: the GPUs as nvidia-smi -i takes them. every_gpu: these are all GPUs of the host.
    """
    if finding.code is None or not known(finding.code):  # of another version
        return finding.why, finding.steps
    one = {"gpu": ONE_OF_SEVERAL, "peer": ONE_OF_SEVERAL}
    row, steps = code_of(finding.code), []
    if row.of_table:
        return finding.why, finding.steps
    try:
        for advice in _advice(row, None if finding.verdict is Verdict.SKIP else finding.cause):
            listed = OF_GPUS.search(advice.text) is not None
            if listed and every_gpu:
                texts = msgspec.structs.asdict(advice).items()
                advice = Advice(**{name: OF_GPUS.sub("", text) for name, text in texts if text is not None})
            steps.append(step_of(advice, {**finding.values, **one, **({"gpu": ",".join(ids)} if listed else {})}))
        return WORDS.vformat(row.why, (), {**finding.values, **one, "gpu": "each GPU"}), tuple(steps)
    except (KeyError, ValueError, TypeError):
        return finding.why, finding.steps


def on_finding(check: str, verdict: Verdict, code: str, cause: str | None) -> None:
    """Called for each finding. Tests put `declared` in its place; on a host no finding is lost for it."""


def declared(check: str, verdict: Verdict, code: str, cause: str | None) -> None:
    """Raise ValueError for a finding that its check does not declare; what is no check of a host declares nothing."""
    row, checks = code_of(code), reporting(code) if reported(check) else []
    if checks and not {(check, verdict), (ANY, verdict)} & {*checks}:
        raise ValueError(f"check {check} does not declare {verdict.name} with code {code}")
    # A rule may leave the cause out, where another finding explains it.
    if checks and cause not in (None, row.cause, *row.or_causes) and not row.of_table:
        raise ValueError(f"check {check} does not declare cause {cause} of code {code}")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Builder of the findings of one check about one subject. name: as Finding.subject.

    Values are what a finding's sentences and programs need besides its subject: they identify the fault. Numbers that
    differ with each reading belong into seen, wanted and evidence.
    """

    check: str
    name: str = "host"
    unit: str | None = None
    evidence: tuple[str, ...] = ()

    def with_evidence(self, *lines: str) -> "Subject":
        return msgspec.structs.replace(self, evidence=lines)

    def passes(self, seen: Value, wanted: Value = None) -> Finding:
        return self._finding(Verdict.PASS, seen=seen, wanted=wanted)

    def skips(self, code: str, seen: Value = None, wanted: Value = None, **values: Any) -> Finding:
        """Return SKIP: it does not apply here, or was not run."""
        return self.finding(Verdict.SKIP, code, seen, wanted, **values)

    def unknown(
        self, code: str, seen: Value = None, wanted: Value = None, *, because_of: str | None = None, **values: Any
    ) -> Finding:
        """Return UNKNOWN. because_of: the check whose finding is the reason."""
        return self.finding(Verdict.UNKNOWN, code, seen, wanted, because_of=because_of, **values)

    def warns(self, code: str, seen: Value, wanted: Value = None, **values: Any) -> Finding:
        """Return WARN: it works, with a risk or a loss."""
        return self.finding(Verdict.WARN, code, seen, wanted, **values)

    def fails(self, code: str, seen: Value, wanted: Value = None, **values: Any) -> Finding:
        return self.finding(Verdict.FAIL, code, seen, wanted, **values)

    def finding(
        self,
        verdict: Verdict,
        code: str,
        seen: Value = None,
        wanted: Value = None,
        *,
        cause: str | msgspec.UnsetType | None = msgspec.UNSET,
        confidence: Confidence | None = None,
        alternatives: tuple[Alternative, ...] = (),
        action: Action | None = None,
        owner: Owner | None = None,
        because_of: str | None = None,
        advice: tuple[Advice, ...] = (),
        **values: Any,
    ) -> Finding:
        """Return a finding with the words of its code. What is stated here replaces what the code states.

        advice: steps of a table's row. SKIP names a cause that is by design: nothing is to be done about it.

        Raises KeyError for an unknown code, and for a value that its sentences need and that is not there.
        """
        row = code_of(code)
        cause = row.cause if cause is msgspec.UNSET else cause
        on_finding(self.check, verdict, code, cause)
        to_remedy = None if verdict is Verdict.SKIP else cause
        why, steps = words_of(code, self.name, values, cause=to_remedy, advice=advice)
        return self._finding(
            verdict,
            code=code,
            values={
                name: tuple(value) if isinstance(value, list | tuple | set | frozenset) else value
                for name, value in values.items()
            },
            seen=seen,
            wanted=wanted,
            cause=cause,
            confidence=(confidence or row.confidence) if to_remedy else None,
            alternatives=alternatives,
            action=action or row.action,
            owner=owner or row.owner,
            because_of=because_of,
            why=why,
            steps=steps,
            fix=fix_of(steps),
        )

    def _finding(self, verdict: Verdict, **fields: Any) -> Finding:
        return Finding(
            check=self.check, verdict=verdict, subject=self.name, unit=self.unit, evidence=self.evidence, **fields
        )


def _option(name: str) -> str:
    """A GPU as nvidia-smi -i takes it: its bus id, or the index where only that is known (``GPU3``)."""
    number = name.removeprefix("GPU")
    return name if number == name else number.rstrip("?") or "INDEX"


def would_show(names: Iterable[str]) -> tuple[Alternative, ...]:
    """Return other causes that fit, each with the reading that would show it."""
    return tuple(Alternative(cause=name, would_show=causes()[name].confirm) for name in names)


def rows() -> Iterator[tuple[str, Code]]:
    """Yield every code of the catalogue with its full name."""
    for group in groups():
        for name, row in codes(group).items():
            yield f"{group}.{name}", row
