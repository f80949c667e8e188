"""One thing a check found out: what was seen, what was wanted, and what to do about the difference."""

import re
from collections.abc import Iterable
from enum import Enum
from typing import Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from gpucheck.model.device import Device
from gpucheck.model.host.hardware import Gpu
from gpucheck.model.host.wiring import TopologyGpu


class Verdict(Enum):
    """What a check concluded. UNKNOWN is "could not look"; SKIP is "does not apply here"."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    SKIP = "skip"

    __hash__ = object.__hash__  # Enum's own is Python code, and a fleet asks for it a million times


RANK = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.PASS)  # worst first
# --fail-on: the verdicts that are no success. Whoever schedules jobs may accept WARN, and not "could not look".
FAIL_ON = {
    "warn": (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN),
    "unknown": (Verdict.FAIL, Verdict.UNKNOWN),
    "fail": (Verdict.FAIL,),
}

# Nagios plugin meanings. Every other status is outside 0 to 3, so that nothing acts on it as on a verdict.
EXIT_STATUS = {Verdict.PASS: 0, Verdict.WARN: 1, Verdict.FAIL: 2, Verdict.UNKNOWN: 3}
EXIT_USAGE = 64  # wrong usage, or input that cannot be read; 64, 70 and 74 as in <sysexits.h>
EXIT_DEFECT = 70
EXIT_NOT_WRITTEN = 74
EXIT_INTERRUPTED = 130
EXIT_READER_LEFT = 141  # as a shell reports a program that SIGPIPE ended


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a whole: the worst of its parts. SKIP never counts; nothing to count is UNKNOWN."""
    seen = set(verdicts)
    return next((verdict for verdict in RANK if verdict in seen), Verdict.UNKNOWN)


def exit_status(verdicts: Iterable[Verdict], fail_on: str) -> int:
    """The status of a command with these findings. fail_on: a key of FAIL_ON."""
    seen, counted = set(verdicts), FAIL_ON[fail_on]
    whole = worst(seen)
    if whole in counted or whole is Verdict.PASS:
        return EXIT_STATUS[whole]
    return EXIT_STATUS[worst((Verdict.PASS, *seen.intersection(counted)))]


Value = str | int | float | bool | None
Values = Value | tuple[Value, ...]
Confidence = Literal["certain", "likely", "possible"]
# The mildest first.
Action = Literal[
    "none",
    "wait",
    "change-setting",
    "restart-service",
    "reset-gpu",
    "reboot",
    "power-cycle",
    "replace",
    "contact-support",
]
Owner = Literal["node", "user", "site"]


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """Another cause that fits the observations. would_show: the reading that distinguishes them, and how to take it."""

    cause: str
    probability: float | None = None
    would_show: str


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to do: text as text, or a command for a shell. changes: whether it alters the host."""

    changes: bool
    text: str | None = None
    command: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict about one subject.

    subject: ``host``, ``gpu:<bus id>``, ``pair:<bus id>-<bus id>`` or ``link:<bus id>/<link>``. Never an index alone:
    an index changes with CUDA_VISIBLE_DEVICES and with the driver's ordering.
    gpu_index, gpu_uuid: NVML's index and UUID of the GPU in the subject, None where it is not about one or NVML does
    not list it. peer_index, peer_uuid: of the second GPU of a pair. model.naming fills them in for a whole report.
    unit: unit of seen and wanted when they are numbers.
    code: what was found, a key of the catalogue (``pcie.width-reduced``); None for PASS. values: what identifies the
    fault besides subject and code, by name. why, steps and fix are the words of the code with these values.
    cause: a key of the knowledge room's causes, or None.
    confidence: how sure the cause is. alternatives: other causes that fit, in order.
    probability: of a cause, 0 to 1; None unless a measured frequency stands behind it.
    action: what the finding asks to be done to the host, ``none`` where nothing follows. owner: who does it: ``node``
    (whoever administers the host, without touching hardware), ``user`` (the owner of the job), ``site`` (hands, parts,
    network, cloud provider). A check states them only where its cause has several remedies; model.action fills in the
    others for a whole report.
    evidence: which call or file reported what, one raw value per line.
    seconds: what the check took, shared by all its findings.
    because_of: the check whose finding is the root cause of this one, which then adds nothing of its own.
    because_of_subject: of a WARN or FAIL that is part of another fault, the subject of that finding.

    Every verdict but PASS and SKIP has why and fix; a SKIP has why. Raises ValueError otherwise.
    """

    check: str
    verdict: Verdict
    subject: str
    code: str | None = None
    values: dict[str, Values] = {}
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    peer_index: int | None = None
    peer_uuid: str | None = None
    because_of: str | None = None
    because_of_subject: str | None = None
    seen: Value = None
    wanted: Value = None
    unit: str | None = None
    cause: str | None = None
    confidence: Confidence | None = None
    probability: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    action: Action | None = None
    owner: Owner | None = None
    why: str = ""
    fix: str = ""
    steps: tuple[Step, ...] = ()
    evidence: tuple[str, ...] = ()
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.verdict is Verdict.PASS:
            return
        if not self.why:
            raise ValueError(f"{self.check}: a {self.verdict.value} finding about {self.subject} must have why")
        if self.verdict is not Verdict.SKIP and not self.fix:
            raise ValueError(f"{self.check}: a {self.verdict.value} finding about {self.subject} must have a fix")


def identity(finding: Finding) -> tuple[object, ...]:
    """Return what two findings about the same thing have in common. Texts and readings do not count."""
    values = tuple(sorted(finding.values.items()))
    return finding.check, finding.subject, finding.code, values, finding.cause


BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


NamedGpu = Gpu | TopologyGpu | Device


def named(findings: Iterable[Finding], gpus: Iterable[NamedGpu]) -> tuple[Finding, ...]:
    places = ((gpu.bus_id if isinstance(gpu, Device) else gpu.pci_bus_id, gpu) for gpu in gpus)
    known = {bus_id: gpu for bus_id, gpu in places if bus_id}
    return tuple(_named(finding, known) for finding in findings)


def _named(finding: Finding, known: dict[str, NamedGpu]) -> Finding:
    found = [known.get(bus_id) for bus_id in bus_ids(finding.subject)]
    if not any(found):
        return finding
    gpu, peer = (*found, None)[:2]
    return replace(
        finding,
        gpu_index=gpu.index if gpu else None,
        gpu_uuid=gpu.uuid if gpu else None,
        peer_index=peer.index if peer else None,
        peer_uuid=peer.uuid if peer else None,
    )


def bus_ids(subject: str) -> tuple[str, ...]:
    """Return what the subject names: one bus id for a GPU or a link, two for a pair, none for the host."""
    kind, _, name = subject.partition(":")
    if kind == "pair":
        first, _, second = name.partition("-")
        return first, second
    if kind == "link":
        return (name.partition("/")[0],)
    return (name,) if kind == "gpu" else ()


def where(finding: Finding) -> str:
    """Return the subject as text: ``GPU 2 (0000:4c:00.0) NVLink 3``; empty for the host as a whole."""
    kind, _, name = finding.subject.partition(":")
    ids = bus_ids(finding.subject)
    if kind == "pair":
        return f"{gpu_name(ids[0], finding.gpu_index)} - {gpu_name(ids[1], finding.peer_index)}"
    if kind == "gpu":
        return gpu_name(name, finding.gpu_index)
    if kind == "link":
        _, _, link = name.partition("/")
        if link or finding.gpu_index is not None:
            gpu = gpu_name(ids[0], finding.gpu_index)
            return f"{gpu} NVLink {link}" if link else gpu
        # A bridge, a port or an NVSwitch: the subject does not distinguish them, and lspci -s accepts its bus id.
        return f"PCIe device {ids[0]}" if BUS_ID.fullmatch(ids[0]) else ids[0]
    if kind == "nic":
        words = (finding.values.get("device", "NIC"), "port" in finding.values and f"port {finding.values['port']}")
        text = " ".join(str(word) for word in words if word)
        return f"{text} ({name})" if BUS_ID.fullmatch(name) else text
    if kind in ("node", "path", "switch"):
        return f"{kind} {name}"
    return "" if finding.subject == "host" else finding.subject


def gpu_name(bus_id: str, index: int | None) -> str:
    """Return ``GPU 2 (0000:4c:00.0)``; without an index the bus id alone, which ``nvidia-smi -i`` takes as well."""
    if index is not None:
        return f"GPU {index}" if bus_id == f"GPU{index}" else f"GPU {index} ({bus_id})"
    return f"GPU {bus_id.removeprefix('GPU').strip()}"


GOOD = (Verdict.PASS, Verdict.SKIP)
# Verdicts that a fault can have, the worst first.
FOUND = (Verdict.FAIL, Verdict.WARN)


class Evaluated(Protocol):
    """A finding, or what was read of one."""

    @property
    def verdict(self) -> Verdict:
        """Its verdict."""

    @property
    def because_of(self) -> str | None:
        """The check of its root cause."""


class Fault(NamedTuple):
    """A finding on its own. also: what other checks found of the same fault, in their order."""

    lead: Finding
    also: tuple[Finding, ...] = ()


def follows(finding: Evaluated) -> bool:
    """Whether this is a WARN or FAIL that another finding leads: a part of its fault, and none of its own."""
    return finding.verdict in FOUND and finding.because_of is not None


def counted(findings: Iterable[Evaluated]) -> dict[str, int]:
    """Return the number of findings by verdict, every verdict present; a fault counts once."""
    verdicts = [finding.verdict for finding in findings if not follows(finding)]
    return {verdict.value: verdicts.count(verdict) for verdict in Verdict}


def by_root(findings: Iterable[Finding]) -> tuple[list[Fault], dict[str, list[str]]]:
    """Return the findings that stand alone with their parts, and by check of the root cause the checks not run.

    A finding whose root cause is not among the findings, or is milder, stands alone.
    """
    findings = list(findings)
    roots = _roots(findings)
    leads = [one for one in findings if one.verdict in FOUND and not follows(one)]
    own: list[Finding] = []
    also: dict[int, list[Finding]] = {}
    unrun: dict[str, dict[str, None]] = {}
    for finding in findings:
        root = _root(finding, roots)
        if follows(finding) and (lead := _lead(finding, leads)) is not None:
            also.setdefault(id(lead), []).append(finding)
        elif finding.verdict in FOUND or root is None:
            own.append(finding)
        else:
            unrun.setdefault(root, {})[finding.check] = None
    faults = [Fault(finding, tuple(also.get(id(finding), ()))) for finding in own]
    return faults, {root: list(checks) for root, checks in unrun.items()}


def _lead(part: Finding, leads: list[Finding]) -> Finding | None:
    """The finding that a part points to and that is at least as bad; of several that of the same cause."""
    place = part.because_of, part.because_of_subject
    named = [one for one in leads if (one.check, one.subject) == place and _rank(one) <= _rank(part)]
    return min(named, key=lambda one: one.cause != part.cause, default=None)


def _rank(finding: Finding) -> int:
    return FOUND.index(finding.verdict)


def _roots(findings: list[Finding]) -> dict[str, str | None]:
    """By check with a problem: the check that it follows from, None where one of its findings is its own."""
    roots: dict[str, str | None] = {}
    for finding in findings:
        if finding.verdict not in GOOD:
            roots[finding.check] = finding.because_of if roots.get(finding.check, "") is not None else None
    return roots


def _root(finding: Finding, roots: dict[str, str | None]) -> str | None:
    """The last of a chain: acs follows from inventory, and that from driver."""
    check = finding.because_of
    passed = {finding.check}
    while check is not None and check in roots and check not in passed:
        passed.add(check)
        after = roots[check]
        if after is None or after not in roots:
            return check
        check = after
    return None
