"""An archive about a node that a search named, for a support case: redacted, but for the serial numbers of its GPUs."""

import csv
import gzip
import io
import re
import tarfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from gpucheck.model import Verdict, counted
from gpucheck.model.isolation import IsolationReport
from gpucheck.printable import one_line

if TYPE_CHECKING:
    from gpucheck.host.recording import Recording

RECORD = ("record", "--no-redact", "-o", "-")  # redacted here, where the serial numbers are taken from it before
RECORD_S = 180.0
GPU = ("index", "name", "pci_bus_id", "serial", "vbios")


def named_nodes(search: IsolationReport) -> tuple[str, ...]:
    """Return the nodes that the search found bad."""
    return tuple(one.name for one in search.nodes if one.verdict is Verdict.FAIL)


def pack(node: str, content: bytes, search: IsolationReport) -> bytes:
    """Return the archive (tar.gz) about one node: what it recorded, its report, kernel log and GPUs, and its tests.

    content: of its recording, not redacted. Raises UnreadableInput if it is not a recording.
    """
    from gpucheck.host.recording import decode, encode
    from gpucheck.host.recording.redaction import Redaction, of_recording, redacted
    from gpucheck.render.formats import show, to_json
    from gpucheck.render.subjects.isolation import document
    from gpucheck.run import verification

    kept = decode(content, node)
    clean = redacted(kept, of_recording(kept))
    quick = verification.select(verification.quick_steps(), level="quick", only=(), skip=())
    of_node = _tests_of(node, search)
    tests = show(document(of_node), "markdown", verbose=True)
    others = {name for each in of_node.results for one in each for name in one.nodes} - {node}
    numbered = {node: "this-node"} | {name: f"node-{at}" for at, name in enumerate(sorted(others), start=1)}
    names = "|".join(map(re.escape, sorted(numbered, key=len, reverse=True)))
    tests = re.sub(rf"(?<![\w.-])(?:{names})(?![\w-])", lambda found: numbered[found[0]], tests)
    change = Redaction([search.host, *(one.name for one in search.nodes)], [tests]).text
    log = clean.kernel_log.lines if clean.kernel_log else ()
    return _archive(
        {
            "recording.json.gz": encode(clean),
            "report.json": to_json(verification.verify(clean, quick)).encode(),
            "kernel.log": "".join(f"{one_line(line.text, len(line.text))}\n" for line in log).encode(),
            "gpus.csv": _gpus(kept).encode(),
            "tests.md": change(tests).encode(),
        }
    )


def _tests_of(node: str, search: IsolationReport) -> IsolationReport:
    results = tuple(tuple(one for one in each if node in one.nodes and len(one.nodes) == 2) for each in search.results)
    found = tuple(one for one in search.findings if one.subject == f"node:{node}")
    return msgspec.structs.replace(
        search,
        host="controller",
        nodes=tuple(one for one in search.nodes if one.name == node),
        results=results,
        rounds=tuple(tuple(one.nodes for one in each) for each in results),
        tests=sum(map(len, results)),
        findings=found,
        counts=counted(found),
        truth=None,
    )


def _gpus(recording: "Recording") -> str:
    """Return what the vendor's support needs of each GPU."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(GPU)
    for gpu in recording.gpus:
        row = (gpu.index, gpu.name, gpu.pci_bus_id, gpu.health.serial, gpu.health.vbios)
        writer.writerow(["" if cell is None else one_line(str(cell)) for cell in row])
    return out.getvalue()


def _archive(members: Mapping[str, bytes]) -> bytes:
    """Return the same bytes for the same members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"evidence/{name}")
            info.size, info.mode = len(content), 0o600
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0)
