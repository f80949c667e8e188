"""Redaction of a recording: what identifies a machine, a site or a person is replaced, secrets are removed.

Equal things stay equal. Kept are PCI bus ids, versions, models, registers and whatever is evaluated. Text is free: the
rules know shapes, names and places, and no list of them is complete.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from gpucheck.host.recording import Recording
from gpucheck.host.recording.redaction import _names as identifiers
from gpucheck.host.recording.redaction._names import Names, host, in_variable
from gpucheck.host.recording.redaction._rules import Pseudonyms, value_of, without_secrets
from gpucheck.model import Gpu, NvmlFailure
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.full_record import Difference, FullRecord, Ran

FREE = ("kernel_log", "environment", "texts", "libraries", "simulation")
# Versions with four numbers are in them, and no addresses.
VERSIONS = re.compile(r"/sys/|/proc/(?!cmdline$)|/etc/gpucheck/stack\.json$|/etc/os-release$")
VERSION_VARIABLE = re.compile(r"VERSION|PACKAGE|REQUIRE|_LIB", re.IGNORECASE)
# None of them contains a name: hundreds of processors would be searched for nothing, and the hosts and
# authors that a Python package names are published.
PLAIN = re.compile(r"/proc/(?!cmdline$)|/sys/|\{purelib\}")
KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY")
KEY_ENDS = re.compile(r"-----END [A-Z ]{0,30}PRIVATE KEY")
SHORTEST_SERIAL = 4
# In what tools print, nvidia-smi in both of its forms among them, the label alone makes a number an identifier.
LABELLED = re.compile(
    r"(?i)(?P<label>(?:serial(?:[ _]?number)?|guid|\bpdi)\b[^\n:=>]{0,24}[:=>]\s*\"?)"
    r"(?!n/a|none|unknown|not |hidden|zeros)(?=\w*[1-9a-f])(?P<value>\w[\w-]{3,})"
)


def redacted(recording: Recording, names: Pseudonyms | None = None) -> Recording:
    """The recording without what identifies, with the counts of what was replaced.

    names: the replacements, new ones unless given.
    """
    return Redaction(recording, names).with_full(recording.full, recording.differences)


class Redaction:
    """A recording without what identifies, to which programs of --full are added: each is redacted once.

    Arguments and errors as of redacted. A name that only a later program shows is found when all is redacted again.
    """

    def __init__(self, recording: Recording, names: Pseudonyms | None = None) -> None:
        self._rules = rules = _Rules(recording, Pseudonyms() if names is None else names)
        clean = msgspec.to_builtins(msgspec.structs.replace(recording, full=None, differences=()))
        result = {
            part: value if part in ("schema", "gpucheck", "recorded", *FREE) else _everywhere(value, rules.structured)
            for part, value in clean.items()
        }
        name = recording.system.hostname
        result["system"]["hostname"] = rules.names.changed(name, lambda name: host(name, rules.names))
        for gpu in result.get("nvml", {}).get("gpus", ()):
            for process in gpu["health"]["processes"] or () if gpu.get("health") else ():
                process["name"] = process["name"] and rules.text(process["name"])
        if isinstance(recording.nvml, NvmlFailure):
            result["nvml"] = _everywhere(result["nvml"], rules.text)
        if "kernel_log" in clean:
            log = clean["kernel_log"]
            denied, lines = log["denied"] and rules.text(log["denied"]), list(rules.lines(log["lines"]))
            result["kernel_log"] = {**log, "denied": denied, "lines": lines}
        if "environment" in clean:
            result["environment"] = {name: rules.variable(name, value) for name, value in clean["environment"].items()}
        texts = clean["texts"].items()
        result["texts"] = {rules.structured(path): text and rules.file(path, text) for path, text in texts}
        result["libraries"] = _everywhere(clean["libraries"], rules.text)
        result["simulation"] = _everywhere(clean["simulation"], rules.structured)
        result["folders"] = {
            rules.structured(path): found and _everywhere(found, rules.text if path == "/dev" else rules.structured)
            for path, found in clean["folders"].items()
        }
        self._base = msgspec.convert({**result, "redacted": True}, Recording)
        self._bandwidth: tuple[BandwidthReport | None, BandwidthReport | None] = None, None
        self._programs: list[Ran] = []

    def with_full(self, full: FullRecord | None, differences: tuple[Difference, ...]) -> Recording:
        """The recording with what --full added until now. full: as the last time, or with more programs."""
        if full is not None:
            full = self._full(full)
        found = msgspec.convert(_everywhere(msgspec.to_builtins(differences), self._rules.text), tuple[Difference, ...])
        counts = self._rules.names.counts()
        return msgspec.structs.replace(self._base, full=full, differences=found, redactions=counts)

    def _full(self, full: FullRecord) -> FullRecord:
        rules = self._rules
        if full.bandwidth is not self._bandwidth[0]:
            copies = _everywhere(msgspec.to_builtins(full.bandwidth), cache(rules.versioned))
            made = msgspec.convert({**copies, "host": self._base.system.hostname}, BandwidthReport)
            self._bandwidth = full.bandwidth, made
        self._programs += map(rules.program, full.programs[len(self._programs) :])
        rest = msgspec.to_builtins(msgspec.structs.replace(full, bandwidth=None, programs=()))
        clean = msgspec.convert(_everywhere(rest, cache(rules.structured)), FullRecord)
        return msgspec.structs.replace(clean, bandwidth=self._bandwidth[1], programs=tuple(self._programs))


def encodable(recording: Recording) -> Recording:
    """Return the recording with invalid Unicode replaced: file names and variables may contain any bytes."""
    return msgspec.convert(_everywhere(msgspec.to_builtins(recording), _unicode), Recording)


def _unicode(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _everywhere(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _everywhere(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_everywhere(item, change) for item in value]
    return value


class _TextRules:
    """The replacements for texts of one host."""

    def __init__(self, names: Pseudonyms, known: Names, *, uuids: Iterable[str] = (), serials: Iterable[str] = ()):
        """known: has learned from all texts, and learns no more. uuids, serials: of the GPUs."""
        self.names = names
        self.known = known
        self.uuids = frozenset(uuid.removeprefix("GPU-").lower() for uuid in uuids)
        reported = {one for one in serials if one.strip("0") and len(one) >= SHORTEST_SERIAL}
        longest = sorted(reported, key=lambda one: (-len(one), one))
        self.serials = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])") if longest else None
        known.freeze()

    def structured(self, text: str) -> str:
        """What is replaced: identifiers by their shape, and paths; a host may be called "open"."""
        return self.names.changed(text, self._shapes)

    def text(self, text: str, *, addresses: bool = True) -> str:
        return self.names.changed(
            text, lambda it: self._free(without_secrets(it, self.names.secret), addresses=addresses)
        )

    def _shapes(self, text: str) -> str:
        text = identifiers.serials(text, self.names, self.serials)
        text = identifiers.by_shape(text, self.names, self.uuids)
        return identifiers.paths(text, self.names)

    def _free(self, text: str, *, addresses: bool) -> str:
        text = identifiers.mails(text, self.names)
        text = self.known.replaced(self._shapes(text), self.names)
        return identifiers.addresses(text, self.names) if addresses else text


class _Rules(_TextRules):
    """The replacements for one recording."""

    def __init__(self, recording: Recording, names: Pseudonyms) -> None:
        known = Names(recording.system.hostname)
        for text in _free_texts(recording):
            known.learn(text)
        for name, value in (recording.environment or {}).items():
            known.learn_variable(name, value)
        super().__init__(
            names,
            known,
            uuids=(gpu.uuid for gpu in recording.gpus if gpu.uuid),
            serials=(serial for gpu in recording.gpus for serial in _serials(gpu) if serial),
        )

    def file(self, path: str, text: str) -> str:
        if PLAIN.match(path):
            return self.structured(text)
        return self.text(text, addresses=not VERSIONS.match(path))

    def program(self, ran: Ran) -> Ran:
        """What a program printed. Tools print versions with four numbers, and gpucheck's reports name addresses.

        Of JSON only the values: a report is mostly numbers, and names of fields.
        """
        own = ran.command[:1] == ("-m",)

        @cache
        def printed(text: str) -> str:
            text = LABELLED.sub(lambda found: found["label"] + identifiers.serial(found["value"], self.names), text)
            return self.text(text, addresses=own)

        def values(text: str) -> str | None:
            try:
                return msgspec.json.encode(_everywhere(msgspec.json.decode(text), printed)).decode()
            except msgspec.DecodeError:
                return None

        output = values(ran.output) if own else None
        if output is None:
            lines = ran.output.split("\n")
            known = [values(line) if own else None for line in lines]
            output = "\n".join(printed(line) if one is None else one for line, one in zip(lines, known, strict=True))
        return msgspec.structs.replace(ran, output=output, errors=printed(ran.errors))

    def versioned(self, text: str) -> str:
        """Text of a report: versions with four numbers are in it, and no addresses."""
        return self.text(text, addresses=False)

    def variable(self, name: str, value: str) -> str:
        addresses = not VERSION_VARIABLE.search(name)

        def rules(text: str) -> str:
            text = value_of(name, text, self.names.secret)
            text = without_secrets(text, self.names.secret)
            return self._free(in_variable(name, self._shapes(text), self.names), addresses=addresses)

        return self.names.changed(value, rules)

    def lines(self, lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Kernel messages; a private key may go over several."""
        inside = False
        for line in lines:
            inside = inside or bool(KEY_BEGINS.search(line["text"]))
            text = self.names.changed(line["text"], self.names.secret) if inside else self.text(line["text"])
            inside = inside and not KEY_ENDS.search(line["text"])
            yield {**line, "text": text}


def _free_texts(recording: Recording) -> Iterator[str]:
    """Yield texts of the parts that were read."""
    yield from (line.text for line in (recording.kernel_log.lines if recording.kernel_log else ()))
    yield from (recording.environment or {}).values()
    yield from (text for path, text in recording.texts.items() if text and not PLAIN.match(path))
    for ran in recording.full.programs if recording.full else ():
        yield ran.errors
        if ran.command[:1] != ("-m",):
            yield ran.output


def of_texts(
    names: Iterable[str], texts: Iterable[str], *, users: Iterable[str] = (), uuids: Iterable[str] = ()
) -> Callable[[str], str]:
    """Return the redaction for texts about hosts, such as the findings of a report.

    names: of the hosts. texts: everything that may name hosts and users. users: names of accounts that are known
    already. uuids: of GPUs.
    """
    known = Names("")
    for name in names:
        known.learn_host(name, sure=True)
    for text in texts:
        known.learn(text)
    known.users.update(users)
    return _TextRules(Pseudonyms(), known, uuids=uuids).text


def _serials(gpu: Gpu) -> tuple[str | None, ...]:
    return gpu.health.serial, gpu.health.rack.chassis_serial if gpu.health.rack else None
