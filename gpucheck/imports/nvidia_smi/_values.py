"""Values as nvidia-smi prints them. None is "the text does not say": N/A, an error, or nothing at all."""

import re

from gpucheck.imports._common import linux_bus_id
from gpucheck.imports._regex import regex

NUMBER = regex(r"\s*(-?\d{1,12}(?:\.\d{1,6})?)\s*(MiB|GiB|KiB|MB|Mb|W|mW|C|%|MHz|x|bank\(s\)|us)?\s*")
MEMORY = {"KiB": 1 << 10, "MiB": 1 << 20, "MB": 1 << 20, "Mb": 1 << 20, "GiB": 1 << 30}
BUS_ID = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
DEVICE_ID = regex(r"(?:0x)?([0-9A-Fa-f]{4})10[Dd][Ee]")
SWITCHES = {
    **dict.fromkeys(("enabled", "yes", "active", "on", "1"), True),
    **dict.fromkeys(("disabled", "no", "not active", "off", "0"), False),
}
MODES = {
    "default": "default",
    "exclusive_thread": "exclusive-thread",
    "e. thread": "exclusive-thread",
    "exclusive_process": "exclusive-process",
    "e. process": "exclusive-process",
    "prohibited": "prohibited",
}


def number(text: str | None) -> float | None:
    """The number before a unit."""
    match = NUMBER.fullmatch(text) if text else None
    return float(match[1]) if match else None


def whole(text: str | None) -> int | None:
    value = number(text)
    return None if value is None else int(value)


def size(text: str | None) -> int | None:
    """Bytes. A bare number is of MiB, as nvidia-smi prints it with ``nounits``."""
    match = NUMBER.fullmatch(text) if text else None
    return int(float(match[1]) * MEMORY.get(match[2] or "MiB", 1)) if match else None


def switch(text: str | None) -> bool | None:
    """Enabled, Yes, Active, On; Disabled, No, Not Active, Off. A star marks a setting that waits for a reset."""
    return SWITCHES.get(text.strip().rstrip("*").lower()) if text else None


def compute_mode(text: str | None) -> str | None:
    """By NVML's names in kebab case."""
    return MODES.get(text.strip().lower()) if text else None


def bus_id(text: str | None) -> str | None:
    """``00000000:3B:00.0`` as ``0000:3b:00.0``; None for all ones, which NVML answers for a device it cannot see."""
    found = linux_bus_id(text or "")
    return None if found is None or found.startswith("ffffffff:") else found


def device_id(text: str | None) -> str | None:
    """``0x233010DE`` as ``2330``."""
    match = DEVICE_ID.fullmatch(text.strip()) if text else None
    return match[1].lower() if match else None


def version(text: str | None) -> str | None:
    """A version; None for N/A and Not Found. R610 writes a note behind some."""
    match = re.fullmatch(r"(\d{1,5}(?:\.\d{1,5}){1,3})(?:\s{1,4}\[.{0,200})?", text) if text else None
    return match[1] if match else None
