"""Your own key for hosts with Secure Boot, with which DKMS signs kernel modules."""

import re

import msgspec

from gpucheck.knowledge.strict import InputProblem, Value

PATH = "/etc/dkms/framework.conf.d/gpucheck-mok.conf"
# DKMS reads its settings with a shell.
SAFE = re.compile(r"/[A-Za-z0-9._/+-]+")


class Mok(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """stack.yml's ``mok``: paths on the hosts, both or neither. certificate: DER, as mokutil needs it."""

    key: str | None = None
    certificate: str | None = None


def read_mok(value: Value) -> Mok:
    """Read ``none``, or ``key`` and ``certificate``. Raises InputProblem with the line."""
    if not value.is_mapping:
        value.word("none", "auto")
        return Mok()
    found = value.fields({"key": host_path, "certificate": host_path})
    lacking = [name for name in ("key", "certificate") if name not in found]
    if lacking:
        raise value.problem(f"{lacking[0]} is missing: DKMS signs with a key and its certificate")
    return Mok(**found)


def host_path(value: Value) -> str:
    """A path of a file on the hosts. Raises InputProblem with the line."""
    text = value.text().strip()
    if not SAFE.fullmatch(text):
        raise _no_path(value, text)
    return text


def _no_path(value: Value, text: str) -> InputProblem:
    return value.problem(f"{text!r} is not an absolute path of letters, digits and . _ + - on the hosts")


def mok_file(mok: Mok) -> str:
    """Return the settings file of DKMS."""
    return f"mok_signing_key={mok.key}\nmok_certificate={mok.certificate}\n"
