"""Kernel log: which errors did the driver, the switches, the PCI bus and the IOMMU report since boot?

Source: Xid and SXid lines (NVRM, nvidia-nvswitch) with the actions of NVIDIA's Xid catalogue, and the classes of
messages of the kernel, the module loader and systemd in kernel_messages.yml. An error is reported once for each GPU,
with its first and last message and with what followed from it. In a file with several boots, what came before the last
is WARN at most. Faults of an application alone are not reported. A line about GPUs, the health of the host or the end
of a job that is not known to be harmless is quoted, and is no PASS.
"""

import re
from collections.abc import Container, Iterable, Iterator
from functools import cache, cached_property
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.kernel._events import (
    BUS,
    RANK,
    Event,
    LogMessage,
    Machine,
    Meaning,
    bus_id,
    events,
    messages,
    named,
    without_restored,
)
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.messages import Family, Harmless, Patterns, families, trouble
from gpucheck.model import Finding, KernelLine, KernelLog, Verdict
from gpucheck.model.facts import Facts
from gpucheck.printable import counted

NAME = "kernel-log"
NVSWITCH = ("10de", "0680")
AT_BOOT_S, DAY_S = 3600.0, 86400.0
SHOWN, KINDS_SHOWN = 3, 5  # messages of one error, kinds of lines of one family
QUOTE = 300
# After one of these a GPU does not respond: every later error of it is a consequence. Xid 154 names the action.
LOST = {"xid:79", "gpu-off-bus"}
RECOVERY_ACTION = {"xid:154"}
OF_AN_APPLICATION = {"xid:13", "xid:31", "xid:43", "xid:45"}
HOST, EVERYWHERE, A_GPU = "host", "*", "gpu:*"
# The first message of a kernel. Live logs begin with it or after it; a file of syslog has those of several boots.
START = re.compile(r"Linux version \d+\.\d+")


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for each error and GPU, switch or host, else one for the host."""
    gpus = [device for device in facts.pci if device.is_nvidia_gpu]
    switches = [device for device in facts.pci if (device.vendor_id, device.class_id[:4]) == NVSWITCH]
    above: dict[str, tuple[str, ...]] = {}
    for kind, devices in (("GPU", gpus), ("NVSwitch", switches)):
        for device in devices:
            for port in device.path:
                above[port] = (*above.get(port, ()), f"{kind} {device.bus_id}")
    cards = [device for device in facts.pci if device.is_network_card and device.infiniband_names]
    card_ports = frozenset(port for card in cards for port in card.path) - {*above}
    for port in card_ports:
        above[port] = tuple(f"network card {card.bus_id}" for card in cards if port in card.path)
    of_gpus, of_switches = (frozenset(device.bus_id for device in devices) for devices in (gpus, switches))
    of_cards = frozenset(card.bus_id for card in cards)
    machine = Machine(of_gpus, of_switches, cards=of_cards, card_ports=card_ports, above=above, complete=True)
    return _findings(facts.kernel_log, machine)


def of_log(log: KernelLog, gpus: Iterable[str] = ()) -> Iterator[Finding]:
    """The same for a log without its host. gpus: bus ids of GPUs that are known to be in it."""
    return _findings(log, Machine(frozenset(gpus)))


def _findings(log: KernelLog, bus: Machine) -> Iterator[Finding]:
    if log.source is None:
        yield Subject(check=NAME).unknown("kernel.log-unreadable", error=log.denied)
        return
    said = messages(log.lines)
    # A GPU that fell off the bus is on it no more: the log still names it.
    of = named(said)
    machine = replace(bus, gpus=bus.gpus | of.gpus, switches=bus.switches | of.switches, others=of.others)
    read = events(said, machine)
    roots = _roots(read.events)
    started = max((message.number for message in said if START.match(message.text)), default=0)
    found = [finding for root in roots for finding in _finding(root, machine, started)]
    unknown = list(without_restored(read.strangers, said))
    found += strangers(unknown, read.known, machine.gpus)
    yield from found
    if not found:
        harmless = tuple(f"needs no action: {root.text()}, {root.subject}" for root in roots)
        subject = Subject(check=NAME, evidence=(f"{log.source}: {len(log.lines)} lines", *harmless))
        gone = f"; messages of the first {log.begins_s / DAY_S:.1f} days after boot are overwritten"
        yield subject.passes(f"no error of a GPU, switch or link{gone if log.begins_s > AT_BOOT_S else ''}")


def gpus_named(log: KernelLog) -> frozenset[str]:
    return named(messages(log.lines)).gpus


class _Group:
    def __init__(self, first: Event) -> None:
        self.key, self.subject, self.place, self.follows = first.key, first.subject, first.place, first.follows
        self.events: list[Event] = []
        self.with_it: list[_Group] = []

    @cached_property
    def meaning(self) -> Meaning:
        """Return the worst of the events; of the actions that the driver recommends, the latest."""
        if self.key in RECOVERY_ACTION:
            return self.events[-1].meaning
        return max((event.meaning for event in self.events), key=lambda meaning: RANK.index(meaning.verdict))

    @property
    def rank(self) -> int:
        return RANK.index(self.meaning.verdict)

    @property
    def start(self) -> int:
        return self.events[0].message.number

    def text(self) -> str:
        # Of AER's errors the port reports that one came, and the device what it was.
        reported = sum(" received" in event.message.text for event in self.events)
        times = max(reported, len(self.events) - reported)
        return self.meaning.summary if times == 1 else f"{self.meaning.summary}, {times} times"


def _roots(found: Iterable[Event]) -> list[_Group]:
    by_place: dict[tuple[str, str, str], _Group] = {}
    for event in found:
        by_place.setdefault((event.key, event.subject, event.place), _Group(event)).events.append(event)
    groups = sorted(by_place.values(), key=lambda group: group.start)
    index, roots = _Index(groups), []
    for group in groups:
        root, seen = group, {id(group)}
        while (above := index.part_of(root)) is not None and id(above) not in seen:
            root = above
            seen.add(id(root))
        if root is group:
            roots.append(group)
        else:
            root.with_it.append(group)
    return roots


class _Index:
    """The first group of each key and subject, found without a walk: a hostile log names thousands of devices."""

    def __init__(self, groups: list[_Group]) -> None:
        self.keyed: dict[tuple[str, str], _Group] = {}
        self.any: dict[str, _Group] = {}
        self.lost: dict[str, _Group] = {}
        for group in groups:
            if group.meaning.verdict == "note":
                continue
            for subject in {group.subject, EVERYWHERE} | ({A_GPU} if group.subject.startswith("gpu:") else set()):
                self.keyed.setdefault((group.key, subject), group)
                if "any" not in group.follows and (group.events[0].of_gpu or subject != HOST):
                    self.any.setdefault(subject, group)
            if group.key in LOST:
                self.lost.setdefault(group.subject, group)

    def part_of(self, group: _Group) -> _Group | None:
        """The error that this one followed from: of the same subject, or where either of the two names none.

        Never one with a milder verdict, which would hide this, unless this class names it as its cause and the log
        leaves no other reading.
        """
        subjects = (EVERYWHERE,) if group.subject == HOST else (group.subject, HOST)
        causes = [self.keyed.get((key, subject)) for key in group.follows for subject in subjects]
        above = [self.any.get(subject) for subject in subjects] if "any" in group.follows else []
        if group.subject == HOST and group.events[0].of_gpu:
            above.append(self.keyed.get((group.key, A_GPU)))
        lost = self.lost.get(group.subject)
        if lost is not None and group.start > lost.start and group.key not in LOST | RECOVERY_ACTION:
            above.append(lost)
        sure = [a for a in causes if a is not None and a.meaning.confidence == "certain"]
        sure += [a for a in (*causes, *above) if a is not None and a.rank >= group.rank]
        return min((a for a in sure if a is not group), key=lambda a: a.start, default=None)


def _finding(root: _Group, machine: Machine, started: int) -> Iterator[Finding]:
    """An Xid of an application is no error of the host, but may be all that a pasted log is about.

    started: number of the message with which the kernel started last; what is older is no state of now.
    """
    meaning = root.meaning
    if meaning.verdict == "note":
        if machine.complete or root.key not in OF_AN_APPLICATION:
            return
        meaning = meaning._replace(cause=None, action="none", owner="user")
    also = dict.fromkeys(f"also logged: {part.text()}" for part in root.with_it)
    evidence = (*_quoted([event.message for event in root.events]), *also)
    past = root.events[-1].message.number < started
    evidence += ("the host started again since, without it",) * past
    subject = Subject(check=NAME, name=_subject(root, machine.above), evidence=evidence)
    verdicts = {"fail": Verdict.WARN if past else Verdict.FAIL, "warn": Verdict.WARN, "note": Verdict.UNKNOWN}
    stated = {name: getattr(meaning, name) for name in ("cause", "confidence", "action", "owner")}
    stated |= {"advice": meaning.steps, **meaning.values}
    yield subject.finding(verdicts[meaning.verdict], meaning.code, root.text(), **stated)


def _subject(root: _Group, above: Container[str]) -> str:
    """A message about a port is about its link; one that names no GPU is about the one that its consequences name."""
    if root.place in above:
        return f"link:{root.place}"
    if root.subject != HOST or not root.events[0].of_gpu:
        return root.subject
    subjects = {part.subject for part in root.with_it if part.subject.startswith("gpu:")}
    return subjects.pop() if len(subjects) == 1 else root.subject


def _quoted(lines: list[LogMessage]) -> tuple[str, ...]:
    shown = lines if len(lines) <= SHOWN else [lines[0], *lines[-SHOWN + 1 :]]
    quoted = tuple(f"{_when(message.line)}{message.text[:QUOTE]}" for message in shown)
    if len(lines) <= SHOWN:
        return quoted
    times = [when for message in (lines[0], lines[-1]) if (when := _when(message.line).strip())]
    return (*quoted, f"{len(lines)} messages" + (f", first {times[0]}, last {times[-1]}" if times else ""))


def _when(line: KernelLine) -> str:
    if line.seconds is not None:
        return f"[{line.seconds:.0f} s] "
    return f"[{line.clock}] " if line.clock else ""


BUS_ID = re.compile(BUS)
NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
# Lines of other programs in a syslog, and the frames of a stack, whose head has the meaning.
OTHER = re.compile(r"[\w.-]{1,255} (?:\S{1,100}\[\d{1,10}\]|[\w./-]{1,60}\.desktop\S{0,20}): |.{0,60}\+0x[0-9a-f]+/0x")


class _Known(NamedTuple):
    """A family. plain: its lines that are harmless without a condition; rest: those that need one."""

    family: Family
    patterns: Patterns
    plain: Patterns
    rest: tuple[tuple[Harmless, Patterns], ...]


def strangers(log: Iterable[LogMessage], known: frozenset[str], gpus: frozenset[str]) -> Iterator[Finding]:
    """One finding for each family, verdict and subject.

    log: messages that no code and no class explains. known: keys of what the log reports. gpus: their bus ids.
    """
    groups: dict[tuple[str, Verdict, str], list[LogMessage]] = {}
    for message in log:
        of = _family(message.text)
        if of is not None and not _is_harmless(message, of, known):
            verdict = Verdict.WARN if _trouble().search(message.text) else Verdict.UNKNOWN
            groups.setdefault((of.family.key, verdict, _gpu_named(message.text, gpus)), []).append(message)
    by_key = {family.key: family for family in families()}
    for (key, verdict, subject), found in groups.items():
        yield _of_family(by_key[key], verdict, subject, found)


def _of_family(family: Family, verdict: Verdict, subject: str, found: list[LogMessage]) -> Finding:
    distinct: dict[str, LogMessage] = {}
    for message in found:
        distinct.setdefault(NUMBER.sub("0", message.text[:QUOTE]), message)
    quotes = [message.text[:QUOTE] for message in distinct.values()][:KINDS_SHOWN]
    more = len(found) - len(quotes)
    evidence = (*quotes, *((f"and {counted(more, 'line')} more",) if more else ()))
    of = Subject(check=NAME, name=subject, evidence=evidence)
    seen = f"{counted(len(found), 'line')} about {family.title} not recognized"
    code = "kernel.line-of-trouble" if verdict is Verdict.WARN else "kernel.line-not-known"
    return of.finding(verdict, code, seen, advice=family.steps, family=family.key)


def _family(text: str) -> _Known | None:
    if not _any_word().search(text) or OTHER.match(text):
        return None
    having = (_known(family.key) for family in families() if any(word in text for word in family.words))
    return next((one for one in having if one.patterns.search(text)), None)


def _is_harmless(message: LogMessage, of: _Known, known: frozenset[str]) -> bool:
    if of.plain.match(message.text):
        return True
    seconds = message.line.seconds
    return any(
        known.intersection(row.of) if row.of else seconds is not None and seconds < (row.within or 0)
        for row, patterns in of.rest
        if patterns.match(message.text)
    )


def _gpu_named(text: str, gpus: frozenset[str]) -> str:
    named = {bus_id(match["bus"]) for match in BUS_ID.finditer(text)} & gpus
    return f"gpu:{named.pop()}" if len(named) == 1 else "host"


@cache
def _known(key: str) -> _Known:
    family = next(one for one in families() if one.key == key)
    plain = [p for row in family.harmless if not row.of and row.within is None for p in row.patterns]
    rest = [row for row in family.harmless if row.of or row.within is not None]
    return _Known(
        family, Patterns(family.patterns), Patterns(plain), tuple((row, Patterns(row.patterns)) for row in rest)
    )


@cache
def _any_word() -> re.Pattern[str]:
    """A line without any of these words belongs to no family."""
    return re.compile("|".join(sorted({re.escape(word) for family in families() for word in family.words})))


@cache
def _trouble() -> re.Pattern[str]:
    return re.compile(trouble())


CHECK = quick_check(NAME, "hardware", evaluate, ("kernel_log", "pci"))
