"""What identifies a machine or a person is taken out of a recording; equal things stay equal within it.

Each value becomes a hash with a salt of this one recording, which is then forgotten: host names, addresses and serial
numbers are few enough to be guessed from a plain hash. Kept are PCI bus ids, versions, models and whatever is judged.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from gpucheck.host.recording import Recording
from gpucheck.model import NvmlReading

UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
NO_UUID = "00000000-0000-0000-0000-000000000000"  # of a fabric that is one machine: the zero is the information
# 6 bytes are Ethernet's, 20 InfiniBand's; four groups of four an InfiniBand GUID. PCI bus ids have three groups.
HARDWARE_ADDRESS = re.compile(
    r"\b(?:[0-9a-f]{2}:){5,19}[0-9a-f]{2}\b|\b(?:[0-9a-f]{4}:){3}[0-9a-f]{4}\b", re.IGNORECASE
)
NAMED_BY_ADDRESS = re.compile(r"\b(en|wl|ib)x[0-9a-f]{12}\b")
HOME = re.compile(r"(?<![\w.-])(/home/|/Users/)([^/\s:;,\"']+)")
OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
IPV4 = re.compile(rf"(?<![\d.])(?!127\.|0\.0\.0\.0){OCTET}(?:\.{OCTET}){{3}}(?![\d.])")
IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:])|(?<![\w:.])(?:[0-9a-f]{1,4}:){1,6}:[0-9a-f:]*"
)
# Where four numbers with dots are an address; elsewhere they are the version of a library.
WITH_ADDRESSES = ("/proc/cmdline", "/etc/nccl.conf", "/etc/hosts")
SHORTEST_NAME = 4  # a host that is called "gpu" would take every "gpu" in the log with it


def redacted(recording: Recording, salt: bytes | None = None) -> Recording:
    """The recording without what identifies. salt: random unless given."""
    rules = _Rules(recording, secrets.token_bytes(16) if salt is None else salt)
    clean = _everywhere(msgspec.to_builtins(recording), rules.anywhere)
    clean["system"]["hostname"] = rules.host(recording.system.hostname)
    for part in ("kernel_log", "environment"):
        clean[part] = _everywhere(clean[part], lambda text: rules.addresses(rules.host_names(text)))
    clean["texts"] = {
        rules.anywhere(path): text and rules.addresses(rules.host_names(text))
        if path in WITH_ADDRESSES
        else text and rules.host_names(text)
        for path, text in clean["texts"].items()
    }
    clean["folders"] = {rules.anywhere(path): names for path, names in clean["folders"].items()}
    clean["redacted"] = True
    return msgspec.convert(clean, Recording)


def encodable(recording: Recording) -> Recording:
    """The recording with what is no Unicode replaced: file names and the values of variables may hold any bytes."""
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


class _Rules:
    """The replacements for one recording."""

    def __init__(self, recording: Recording, salt: bytes) -> None:
        self.salt = salt
        gpus = recording.nvml.gpus if isinstance(recording.nvml, NvmlReading) else ()
        serials = {gpu.health.serial for gpu in gpus if gpu.health.serial and gpu.health.serial.strip("0")}
        self.serials = _words(serials)
        self.full_name = recording.system.hostname
        self.names = _words({self.full_name, self.full_name.partition(".")[0]})

    def host(self, name: str) -> str:
        """The short name of a host and its full one are told apart by the part behind the first dot alone."""
        short, _, domain = name.partition(".")
        return f"host-{self._digest(short, 8)}" + (f".domain-{self._digest(domain, 8)}" if domain else "")

    def anywhere(self, text: str) -> str:
        """Serial numbers, UUIDs, hardware addresses and home folders."""
        if self.serials:
            text = self.serials.sub(lambda found: self._digits(found[0]), text)
        text = UUID.sub(lambda found: self._uuid(found[0]), text)
        text = HARDWARE_ADDRESS.sub(lambda found: self._address(found[0]), text)
        text = NAMED_BY_ADDRESS.sub(lambda found: f"{found[1]}x{self._digest(found[0], 12)}", text)
        return HOME.sub(lambda found: f"{found[1]}user-{self._digest(found[2], 8)}", text)

    def host_names(self, text: str) -> str:
        """Only in what is free text: a host may be called "open", which is also a kind of kernel module."""
        return self.names.sub(lambda found: self.host(found[0]), text) if self.names else text

    def addresses(self, text: str) -> str:
        """Addresses on a network."""
        text = IPV4.sub(lambda found: f"ip-{self._digest(found[0], 8)}", text)
        return IPV6.sub(lambda found: f"ip-{self._digest(found[0], 8)}", text)

    def _digest(self, text: str, length: int) -> str:
        return hashlib.blake2b(text.encode("utf-8", "replace"), key=self.salt).hexdigest()[:length]

    def _uuid(self, text: str) -> str:
        if text == NO_UUID:
            return text
        hexes = self._digest(text.lower(), 32)
        return "-".join((hexes[:8], hexes[8:12], hexes[12:16], hexes[16:20], hexes[20:]))

    def _address(self, text: str) -> str:
        """As many groups as it had."""
        hexes, width = self._digest(text.lower(), 128), len(text.partition(":")[0])
        return ":".join(hexes[width * n : width * (n + 1)] for n in range(text.count(":") + 1))

    def _digits(self, text: str) -> str:
        """As long as it was."""
        return str(int(self._digest(text, 64), 16))[: len(text)]


def _words(words: set[str]) -> re.Pattern[str] | None:
    """Any of these as a whole word, the longest first; None where none is long enough to be one thing's name."""
    named = sorted((word for word in words if len(word) >= SHORTEST_NAME), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, named))})(?![\w-])") if named else None
