"""Redaction of what is made to be published: host and user names, addresses, serial numbers, UUIDs, secrets."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gpucheck.model import Report
    from gpucheck.model.diagnosis import Diagnosis

ACCOUNTS = ("USER", "LOGNAME", "SUDO_USER")
NO_REDACT = click.option(
    "--no-redact",
    is_flag=True,
    help="Do not redact names, serial numbers, UUIDs and addresses in Markdown.",
)


def of_report(report: "Report") -> Callable[[str], str]:
    gpus = report.topology.gpus if report.topology else ()
    uuids = tuple(gpu.uuid for gpu in gpus if gpu.uuid)
    return _redaction((report.host,), (report.findings, report.system, report.not_proven), uuids)


def of_diagnosis(diagnosis: "Diagnosis") -> Callable[[str], str]:
    hosts = [one.machine for one in (diagnosis, *diagnosis.machines) if one.machine]
    return _redaction(hosts, diagnosis, ())


def _redaction(hosts: Iterable[str], about: object, uuids: tuple[str, ...]) -> Callable[[str], str]:
    import msgspec

    from gpucheck.host.recording.redaction import of_texts

    users = filter(None, (os.environ.get(name) for name in ACCOUNTS))
    return of_texts(hosts, _texts(msgspec.to_builtins(about)), users=users, uuids=uuids)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
