"""Redaction of what is made to be published: host and user names, addresses, serial numbers, UUIDs, secrets."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import click

UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ACCOUNTS = ("USER", "LOGNAME", "SUDO_USER")
NO_REDACT = click.option(
    "--no-redact",
    is_flag=True,
    help="Do not redact names, serial numbers, UUIDs and addresses in Markdown.",
)


def of(report: Any) -> Callable[[str], str]:
    """Return the redaction of texts about a report, which may be of several hosts."""
    import msgspec

    from gpucheck.host.recording.redaction import of_texts

    parts = [report, *getattr(report, "machines", ()), *getattr(report, "hosts", ())]
    hosts = filter(None, (getattr(one, name, None) for one in parts for name in ("host", "machine")))
    users = filter(None, (os.environ.get(name) for name in ACCOUNTS))
    texts = dict.fromkeys(_texts(msgspec.to_builtins(report)))
    uuids = tuple(text for text in texts if UUID.fullmatch(text))
    return of_texts(hosts, texts, users=users, uuids=uuids)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
