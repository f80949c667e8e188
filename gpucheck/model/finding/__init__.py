"""One thing a check found out: what was seen, what was wanted, and what to do about the difference."""

from typing import Literal

import msgspec

from gpucheck.model.finding.verdict import Verdict

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
