#!/usr/bin/env python3
"""Preflight check of NVSentinel: verify the GPUs of a pod in an init container before its program starts.

gpucheck_preflight.py [OPTION of gpucheck verify]...    default: --only with the steps that read NVML alone

NVSentinel's webhook sets NODE_NAME, PLATFORM_CONNECTOR_SOCKET and PROCESSING_STRATEGY. Exit status: 0 passed, 1 failed,
2 no verdict (wrong usage, UNKNOWN, or gpucheck did not run), 3 failed and the event could not be sent. With STORE_ONLY
a failed check does not hold back the pod: 0 instead of 1 and 3. A simulated machine is always STORE_ONLY.

The contract: docs/designs/026-preflight-checks.md and data-models/protobufs/health_event.proto of NVIDIA/NVSentinel.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from gpucheck.knowledge.actions import actions, of_host
from gpucheck.model import Finding, Report, Verdict
from gpucheck.printable import one_line

PASSED, FAILED, NO_VERDICT, NOT_SENT = 0, 1, 2, 3
# They need no kernel log, no PCI configuration space and no services, which a pod without privileges cannot read.
STEPS = (
    "bar1,clock-limit,fabric,gpu-health,inventory,memory-errors,mig,nvlink,nvlink-errors,p2p-status,pcie-link,"
    "power-limit,throttle"
)
TIMEOUT_S = 120
METHOD = "/datamodels.PlatformConnector/HealthEventOccurredV1"
# health_event.proto: numbers of the enums.
STRATEGIES = {"EXECUTE_REMEDIATION": 1, "STORE_ONLY": 2}
ACTIONS = {"NONE": 0, "COMPONENT_RESET": 2, "CONTACT_SUPPORT": 5, "RESTART_VM": 15, "RESTART_BM": 24, "REPLACE_VM": 25}
RETRIES, FIRST_WAIT_S, CALL_S = 5, 1.0, 10.0


def varint(number: int) -> bytes:
    """Return a number of 0 or more as protobuf writes it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def field(number: int, value: int | str | bytes) -> bytes:
    """Return a field of a protobuf message; 0 and False are not written."""
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value)) if value else b""
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def event(report: Report, node: str, strategy: str, finding: Finding | None) -> bytes:
    """Return a HealthEvent: of a finding that holds back the pod, or of a node that passed (None)."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    mark = "SIMULATED: " if report.simulated else ""
    parts = [field(1, 1), field(2, "preflight-gpucheck"), field(3, "GPU"), field(4, "GpucheckPreflight")]
    if finding is None:
        parts += [field(6, True), field(7, f"{mark}gpucheck found no failure ({report.verdict.value})")]
    else:
        meaning = actions()[finding.action or "contact-support"]
        name = meaning.nvsentinel_vm if report.system.virtual else meaning.nvsentinel
        what = finding.cause or finding.check
        message = one_line(f"{mark}{what}: {advice(finding)}")
        parts += [field(5, True), field(7, message), field(8, ACTIONS[name]), field(9, what)]
        for kind, text in entities(finding):
            parts.append(field(10, field(1, kind) + field(2, text)))
    parts += [field(12, field(1, seconds) + field(2, nanoseconds)), field(13, node), field(16, STRATEGIES[strategy])]
    return b"".join(parts)


def entities(finding: Finding) -> Iterator[tuple[str, str]]:
    """Return kind and name of each GPU in the finding."""
    kind, _, name = finding.subject.partition(":")
    if kind in ("gpu", "pair"):
        yield from (("PCI", address) for address in name.split("-"))
    yield from (("GPU_UUID", uuid) for uuid in (finding.gpu_uuid, finding.peer_uuid) if uuid)


def advice(finding: Finding) -> str:
    """Return reason and remedy, whose steps are lines, as one line."""
    return f"{finding.why} Fix: {'; '.join(finding.fix.splitlines())}"


def failures(report: Report) -> list[Finding]:
    """Return the failures that ask for something to be done to the node; a consequence of another is not one."""
    return [
        finding
        for finding in report.findings
        if finding.verdict is Verdict.FAIL
        and not finding.because_of
        and actions()[of_host(finding.action or "contact-support", finding.owner or "node")].condition
    ]


def send(socket: str, events: Sequence[bytes]) -> str | None:
    """Send the events to the platform connector of the node; return why not, or None."""
    try:
        import grpc
    except ImportError:
        return "the image has no Python package grpcio"
    message = field(1, 1) + b"".join(field(2, one) for one in events)
    address, wait, problem = f"unix://{socket.removeprefix('unix://')}", FIRST_WAIT_S, ""
    for attempt in range(RETRIES):
        if attempt:
            time.sleep(wait)
            wait *= 2
        try:
            with grpc.insecure_channel(address) as channel:
                channel.unary_unary(METHOD)(message, timeout=CALL_S)
                return None
        except grpc.RpcError as error:
            problem = f"{address}: {error.code().name}: {error.details()}"
    return f"{problem} ({RETRIES} attempts)"


def verified(options: Sequence[str]) -> Report | None:
    """Run gpucheck verify; None without a complete report, whose reason it has printed."""
    words = ["gpucheck", "verify", *(options or ("--only", STEPS)), "--format", "json"]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=TIMEOUT_S, check=False)
        if done.returncode not in range(4):
            log(f"no verdict: gpucheck verify ended with exit status {done.returncode}")
            return None
        report = msgspec.json.decode(done.stdout, type=Report)
    except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        log(f"no verdict: {error}")
        return None
    return None if report.interrupted else report


def log(text: str) -> None:
    """Print a line for `kubectl logs POD -c preflight-gpucheck`."""
    print(f"gpucheck-preflight: {one_line(text)}", file=sys.stderr, flush=True)


def main(
    options: Sequence[str], environment: Mapping[str, str], sender: Callable[[str, Sequence[bytes]], str | None] = send
) -> int:
    """Return the exit status."""
    node, socket = environment.get("NODE_NAME"), environment.get("PLATFORM_CONNECTOR_SOCKET")
    strategy = environment.get("PROCESSING_STRATEGY") or "EXECUTE_REMEDIATION"
    if not node or not socket or strategy not in STRATEGIES:
        log("NODE_NAME, PLATFORM_CONNECTOR_SOCKET and PROCESSING_STRATEGY are set by NVSentinel's preflight webhook")
        return NO_VERDICT
    report = verified(options)
    if report is None:
        return NO_VERDICT
    if report.simulated:
        strategy = "STORE_ONLY"
    failed = failures(report)
    for finding in report.findings:
        if finding.verdict in (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN):
            log(f"{finding.verdict.value.upper()} {finding.check} {finding.subject}: {advice(finding)}")
    if not failed and any(finding.verdict is Verdict.UNKNOWN for finding in report.findings):
        log("no verdict: a check is UNKNOWN, which is not a pass")
        return NO_VERDICT
    problem = sender(socket, [event(report, node, strategy, finding) for finding in failed or (None,)])
    if problem:
        log(f"the health event was not sent: {problem}")
    if not failed:
        return PASSED  # a node that passed is not held back because of its monitoring
    if strategy == "STORE_ONLY":
        log("failed, but STORE_ONLY does not hold back the pod")
        return PASSED
    return NOT_SENT if problem else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
