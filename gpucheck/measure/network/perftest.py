"""Run perftest: a server and a client for each test, all of a list at the same time, every process with an end."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, NamedTuple

from gpucheck.host.simulated import surroundings
from gpucheck.imports.network.perftest import ERRORS, Result, results
from gpucheck.measure.engines.driver.gpu import on_node
from gpucheck.model.diagnosis.observations import ObservedNic, Port
from gpucheck.processes.group import Group, end

# Around the time of a test: start of both processes, memory registration, CUDA.
SLACK_S = 30.0
GRACE_S = 0.3
POLL_S = 0.01
LATENCY_ITERATIONS = 1000
PROGRAMS = {"write": "ib_write_bw", "read": "ib_read_bw", "send": "ib_send_bw", "latency": "ib_write_lat"}
# The kernel ends it with this process (PR_SET_PDEATHSIG, SIGKILL); perftest itself takes the place of Python, which
# starts without anything that it does not need.
WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) and os.execvp(sys.argv[2], sys.argv[2:])"
)
WAITING, FAILED = "Waiting for client", tuple(word.strip() for word in ERRORS)
LISTENING = "0A"  # state of /proc/net/tcp
PER_GIGABIT = 0.125


class Transfer(NamedTuple):
    """One transfer from client to server, each with its port. operation: of PROGRAMS.

    gpu: whose memory both ends use, None for host memory; uuid: as CUDA names it; memory: ``host peermem dma-buf``.
    """

    operation: str
    client: ObservedNic
    server: ObservedNic
    ports: tuple[int, int] = (1, 1)
    gpu: Port | None = None
    uuid: str = ""
    memory: str = "host"
    together: bool = False
    seconds: int = 1


Outcome = Result | str
"""A result, or why there is none."""
Runner = Callable[[Sequence[Transfer]], list[Outcome]]


Side = tuple[Group, IO[bytes]]
"""One process, and what it prints."""


def measured(tests: Sequence[Transfer]) -> list[Outcome]:
    """Run all at the same time. Whatever ends this, no process is left. Raises OSError if one cannot be started."""
    sides: list[Side] = []
    with ExitStack() as files:
        try:
            ports = _free_ports(len(tests))
            for test, port in zip(tests, ports, strict=True):
                sides.append(_start(test, port, files, server=True))
            _until(lambda: all(_is_up(one, port) for one, port in zip(sides, ports, strict=True)), SLACK_S)
            for test, port in zip(tests, ports, strict=True):
                sides.append(_start(test, port, files, server=False))
            longest = max(test.seconds for test in tests) + SLACK_S
            ended = _until(lambda: all(group.status() is not None for group, _ in sides), longest)
        finally:
            end([group for group, _ in sides], ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)))
        texts = [_text(output) for _, output in sides]
    late = "" if ended else f"no end within {longest:g} s"
    return [_outcome(client, server, late) for server, client in zip(texts, texts[len(tests) :], strict=False)]


def command(test: Transfer, port: int, *, server: bool) -> list[str]:
    """Return the words of one side. Soft-RoCE has a completion for each message: a hundred take seconds there."""
    nic, number = (test.server, test.ports[1]) if server else (test.client, test.ports[0])
    words = [PROGRAMS[test.operation], "-d", nic.name, "-i", str(number), "-p", str(port), "-F"]
    if test.operation == "latency":
        words += ["-n", str(LATENCY_ITERATIONS)]
    else:
        words += ["--report_gbits", "-D", str(test.seconds)]
        words += ["-Q", "1", "-s", "4096"] if nic.rate_gbit_s is None else []
    if test.gpu is not None:
        words += ["--use_cuda=0", *(["--use_cuda_dmabuf"] if test.memory == "dma-buf" else [])]
    return words if server else [*words, "127.0.0.1"]


def _start(test: Transfer, port: int, files: ExitStack, *, server: bool) -> Side:
    output = files.enter_context(os.fdopen(os.memfd_create("perftest"), "w+b"))
    environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": test.uuid} if test.gpu else {})}
    words = [sys.executable, "-IS", "-c", WITH_PARENT, str(os.getpid()), *command(test, port, server=server)]
    with on_node((test.server if server else test.client).numa_node):
        return Group(words, environment, stdout=output, stderr=output), output


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    limit = time.monotonic() + seconds
    while not (done := condition()) and time.monotonic() < limit:
        time.sleep(POLL_S)
    return done


def _is_up(server: Side, port: int) -> bool:
    return server[0].status() is not None or port in set(_listening())


def _listening() -> Iterator[int]:
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for local, _, state in (line.split()[1:4] for line in lines):
            if state == LISTENING:
                yield int(local.rpartition(":")[2], 16)


def _text(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read(1 << 20).decode(errors="replace").splitlines()


def _outcome(client: list[str], server: list[str], late: str) -> Outcome:
    """Return the best row; without one, or with nothing moved, it failed, whatever its exit status."""
    found = next(results(client), None)
    if found is not None:
        return found if found.value > 0 else "nothing arrived in the time of the test"
    lines = [line.strip() for line in (*client, *server) if line.strip().strip("-*") and WAITING not in line]
    told = next((line for line in lines if line.startswith(FAILED)), None)
    return late or told or (lines[-1] if lines else "no output")


def simulated(machine: Path, limit: Callable[[Transfer, Sequence[Transfer]], float]) -> Runner:
    """Return what a simulated machine has in the place of perftest. limit: GB/s of a healthy card as it is linked.

    Its surroundings state which part of it a card reaches.
    """
    parts = surroundings(machine).network

    def run(tests: Sequence[Transfer]) -> list[Outcome]:
        return [_result(test, limit(test, tests), parts) for test in tests]

    return run


def _result(test: Transfer, gb_s: float, parts: dict[str, float]) -> Result:
    """Healthy cards reach a little less than the limit, each by its own name."""
    name = test.client.name
    reached = 0.975 + sum(name.encode()) % 7 / 1000
    part = min(parts.get(nic.name, 1.0) for nic in (test.client, test.server))
    if test.operation == "latency":
        return Result("RDMA_Write Latency Test", name, 2, round(0.9 / part, 2), "us", 4096)
    return Result("RDMA test", name, 65536, round(gb_s * reached * part / PER_GIGABIT, 2), "Gb/s", 4096)
