"""Xid and SXid codes of the kernel log (xid.yml, nvlink5.yml, sxid.yml)."""

from functools import cache
from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, table
from gpucheck.knowledge.causes import Advice
from gpucheck.model.finding import Action, Owner

Verdict = Literal["note", "warn", "fail"]


class Catalogued(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do: the two actions of NVIDIA's catalogue, and what the first step means for the host and its owner.

    action, owner: of every row with steps that is not a note.
    """

    action: Action | None = None
    owner: Owner | None = None
    immediate: Advice | None = None
    later: Advice | None = None

    @property
    def steps(self) -> tuple[Advice, ...]:
        return tuple(step for step in (self.immediate, self.later) if step)


class Xid(Catalogued, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of some codes. verdict: note = nothing to do.

    detail: which part of the line decides about the action. follows: the Xid, or ``any``, that this one is part of.
    """

    xid: tuple[int, ...]
    reading: str
    verdict: Verdict
    cause: str | None = None
    detail: Literal["recovery-action", "nvlink5"] | None = None
    follows: str | None = None


class RecoveryAction(Catalogued, frozen=True, kw_only=True):
    """What an Xid 154 asks for. names: as the driver versions write it."""

    number: int
    names: tuple[str, ...]
    verdict: Verdict
    does: str


class _Xids(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.xid/3"]
    recovery_actions: tuple[RecoveryAction, ...]
    codes: tuple[Xid, ...]


class Nvlink5Rule(Catalogued, frozen=True, kw_only=True):
    """One row of the catalogue's decode table. unit: the names of one unit. sub, status: the values of the row."""

    xid: int
    unit: tuple[str, ...]
    verdict: Verdict
    sub: tuple[int, ...] = (0,)
    status: tuple[int, ...] = (0,)


class _Nvlink5(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.nvlink5/2"]
    rules: tuple[Nvlink5Rule, ...]


SXID_CAUSE = "nvswitch-error"  # of every code without one of its own


class Sxid(Catalogued, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of some codes of an NVSwitch. verdict: of a line that names no severity."""

    sxid: tuple[int, ...]
    reading: str
    verdict: Verdict
    cause: str = SXID_CAUSE


class _Sxids(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.sxid/2"]
    codes: tuple[Sxid, ...]
    families: dict[int, str]


@cache
def xids() -> dict[int, Xid]:
    """Every known code. Raises KnowledgeError if the file is damaged."""
    return {code: row for row in table("xid.yml", _Xids).codes for code in row.xid}


def recovery_action(name: str, number: int | None = None) -> RecoveryAction | None:
    """The action that an Xid 154 names, by its name, else by its number (versions rename them)."""
    actions = table("xid.yml", _Xids).recovery_actions
    by_name = (a for a in actions if name.casefold() in (known.casefold() for known in a.names))
    return next(by_name, next((a for a in actions if a.number == number), None))


def nvlink5(code: int, unit: str, sub: int, status: int) -> Nvlink5Rule | None:
    """The row of the decode table for one line. With several status bits set, the worst of their rows."""
    rows = [r for r in table("nvlink5.yml", _Nvlink5).rules if r.xid == code and unit in r.unit and sub in r.sub]
    exact = [row for row in rows if status in row.status]
    part = exact or [row for row in rows if any(status & bit for bit in row.status)]
    return max(part, key=lambda row: ("note", "warn", "fail").index(row.verdict), default=None)


@cache
def sxids() -> dict[int, Sxid]:
    return {code: row for row in table("sxid.yml", _Sxids).codes for code in row.sxid}


def sxid_family(code: int) -> str | None:
    """The unit of an NVSwitch that a code belongs to."""
    return table("sxid.yml", _Sxids).families.get(code // 1000)


class CudaError(msgspec.Struct, frozen=True, kw_only=True):
    """One number of CUDA. name: of the runtime, driver: of the driver API; None where one of them lacks it."""

    code: int
    text: str
    name: str | None = None
    driver: str | None = None


class NvmlError(msgspec.Struct, frozen=True, kw_only=True):
    """One number of NVML. verdict: of a host on which a program gets it; cause: a key of causes.yml."""

    code: int
    name: str
    text: str
    verdict: Literal["pass", "warn", "fail", "unknown"]
    means: str
    cause: str | None = None


class _Codes(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.error_codes/1"]
    cuda: tuple[CudaError, ...]
    nvml: tuple[NvmlError, ...]


def cuda_errors() -> dict[int, CudaError]:
    """Every error of the CUDA runtime and driver by its number."""
    return {row.code: row for row in table("error_codes.yml", _Codes).cuda}


def nvml_errors() -> dict[int, NvmlError]:
    return {row.code: row for row in table("error_codes.yml", _Codes).nvml}


def cuda_error_text(code: int) -> str:
    """Return the code with its name, as in ``CUDA error 217 (cudaErrorPeerAccessUnsupported)``."""
    known = cuda_errors().get(code)
    return f"CUDA error {code} ({known.name})" if known else f"CUDA error {code}"
