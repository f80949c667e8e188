"""Meaning of an Xid or SXid line: by its code, and for some codes by the rest of the line."""

import re
from typing import Any, NamedTuple

from gpucheck.checks.kernel._text import BUS, bus_id
from gpucheck.knowledge.advice import Advice
from gpucheck.knowledge.kernel_messages import Confidence, Verdict
from gpucheck.knowledge.xid import SXID_CAUSE, Catalogued, Xid, nvlink5, recovery_action, sxid_family, sxids, xids
from gpucheck.model.finding import Action, Owner

XID = re.compile(r"NVRM: Xid:? ?(?:\((?P<where>[^()]{0,80})\):?)? ?(?P<code>\d{1,5})(?![\w.])(?P<text>.*)")
SXID = re.compile(r"nvidia-nvswitch\d{0,3}: SXid \((?P<where>[^()]{0,80})\): (?P<code>\d{1,6})(?!\w)(?P<text>.*)")
FABRIC_SXID = re.compile(
    rf"detected NVSwitch (?P<text>non-fatal|fatal) error (?P<code>\d{{1,6}})\b(?:.{{0,80}}pci bus id (?P<where>{BUS}))?"
)
PLACE = re.compile(BUS)
SEVERITY = re.compile(r"\b(?P<non>non-?)?fatal\b", re.IGNORECASE)
ACTION = re.compile(
    r"changed (?:from .{1,60} )?to (?:(?P<number>0x[0-9a-f]{1,8})\b ?)?\(?(?P<name>[A-Za-z][\w -]{0,40})", re.I
)
NVLINK5 = re.compile(
    r"(?P<units>[A-Z][\w/]{1,60}) +(?P<fatal>Nonfatal|Fatal) +XC\d +i\d+ +Link (?P<link>-?\d{1,3})"
    r"(?: \((?P<info>0x[0-9a-f]{1,8}) (?P<status>0x[0-9a-f]{1,8}))?",
    re.IGNORECASE,
)
CAUSED_BY = re.compile(r"caused by previous Xid (?P<code>\d{1,5})")


class Meaning(NamedTuple):
    """One kind of message: its severity, a summary, its code with values, and the steps of its row."""

    verdict: Verdict
    summary: str
    code: str
    values: dict[str, Any]
    steps: tuple[Advice, ...] = ()
    cause: str | None = None
    confidence: Confidence = "certain"
    action: Action | None = None
    owner: Owner | None = None


class Code(NamedTuple):
    """One Xid or SXid of a line. bus: as the line names it, None where it does not."""

    key: str
    bus: str | None
    meaning: Meaning
    follows: frozenset[str] = frozenset()


def xid(text: str) -> Code | None:
    match = XID.search(text)
    return of_xid(int(match["code"]), _place(match["where"]), match["text"]) if match else None


def sxid(text: str) -> Code | None:
    """The SXid of a message, as the driver of the switch or fabric manager reports it."""
    match = SXID.search(text) or FABRIC_SXID.search(text)
    return _of_sxid(int(match["code"]), _place(match["where"]), match["text"]) if match else None


def _place(where: str | None) -> str | None:
    match = PLACE.search(where) if where else None
    return bus_id(match["bus"]) if match else None


def of_xid(code: int, bus: str | None, text: str = "") -> Code:
    row = xids().get(code)
    after = frozenset({"any" if row.follows == "any" else f"xid:{row.follows}"}) if row and row.follows else frozenset()
    return Code(f"xid:{code}", bus, _xid_meaning(code, row, text), after)


def _xid_meaning(code: int, row: Xid | None, text: str) -> Meaning:
    if row is None:
        return Meaning("warn", f"Xid {code}", "kernel.xid-not-known", {"xid": code}, (), "xid", "possible")
    summary, cause = f"Xid {code}: {row.reading}", row.cause or "xid"
    meaning = _of_row(Meaning(row.verdict, summary, "kernel.xid-event", {"xid": code}, cause=cause), row)
    if row.detail == "recovery-action" and (match := ACTION.search(text)):
        action = recovery_action(match["name"].strip(), int(match["number"], 16) if match["number"] else None)
        if action is not None:
            name = match["name"].strip()
            meaning = meaning._replace(
                verdict=action.verdict,
                summary=f"Xid 154: {action.does} ({name})",
                code="kernel.recovery-action",
                values={"xid": code, "required": name},
            )
            return _of_row(meaning, action)
    if row.detail == "nvlink5" and (match := NVLINK5.search(text)):
        return _nvlink5_meaning(code, meaning, match)
    return meaning


def _nvlink5_meaning(code: int, meaning: Meaning, match: re.Match[str]) -> Meaning:
    fatal = match["fatal"].lower() == "fatal"
    link = f" on link {int(match['link'])}" if int(match["link"]) >= 0 else ""
    summary = f"Xid {code}: NVLink 5 {'fatal' if fatal else 'non-fatal'} error, {match['units']}{link}"
    down = fatal and "NETIR" in match["units"]
    meaning = meaning._replace(
        summary=summary, verdict="fail" if fatal else "warn", cause="nvlink-down" if down else meaning.cause
    )
    if match["info"] is None:
        return meaning
    info, status = int(match["info"], 16), int(match["status"], 16)
    found = (nvlink5(code, unit, info >> 20 & 0x3F, status) for unit in match["units"].split("/"))
    rule = next((rule for rule in found if rule), None)
    if rule is None:
        return meaning
    verdict: Verdict = "warn" if rule.verdict == "fail" and not fatal else rule.verdict
    return _of_row(meaning._replace(verdict=verdict), rule)


def _of_sxid(code: int, bus: str | None, text: str) -> Code:
    row, family = sxids().get(code), sxid_family(code)
    reading = row.reading if row else f"error of the {family}" if family else "error"
    severity = SEVERITY.search(text)
    verdict: Verdict = row.verdict if row else "warn"
    if severity:
        verdict = "fail" if not severity["non"] else "warn" if verdict == "fail" else verdict
    meaning = Meaning(verdict, f"SXid {code}: {reading}", "kernel.sxid-not-known", {"sxid": code}, cause=SXID_CAUSE)
    if row:
        found = "kernel.sxid-event" if row.steps else "kernel.sxid-without-action"
        meaning = _of_row(meaning._replace(code=found, cause=row.cause), row)
    return Code(f"sxid:{code}", bus, meaning)


def _of_row(meaning: Meaning, row: Catalogued) -> Meaning:
    """The meaning with what its row asks for."""
    return meaning._replace(steps=row.steps, action=row.action, owner=row.owner)
