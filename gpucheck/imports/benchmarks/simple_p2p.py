"""simpleP2P of NVIDIA's CUDA samples: peer access, one bandwidth, and whether the data of two GPUs was right."""

from gpucheck.imports._blocks import spans
from gpucheck.imports._common import by_pair
from gpucheck.imports._kind import MEASUREMENTS, Kind
from gpucheck.imports._numbers import AGAIN, MOST_GPUS
from gpucheck.imports._problem import ImportProblem, absent, left_out
from gpucheck.imports._regex import regex
from gpucheck.model.diagnosis.observations import Measured, Method, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

TOOL = "simpleP2P"
GIB = 1.073741824  # it divides by 2**30 and prints GB/s

FIRST = regex(r"^\s*\[[\w./\\-]{0,120}simpleP2P[\w.]{0,8}\] - Starting")
COUNT = regex(r"^\s*CUDA-capable device count: (\d{1,3})")
ACCESS = regex(
    r"^[\s>]{0,24}Peer(?:-to-Peer \(P2P\))? access from (\S.{0,98}?) \(GPU(\d{1,2})\) -> (\S.{0,98}?) \(GPU(\d{1,2})\)"
    r" ?: (Yes|No)"
)
COPY = regex(r"cudaMemcpyPeer / cudaMemcpy between GPU(\d{1,2}) and GPU(\d{1,2}): (\d{1,6}(?:\.\d{1,4})?) ?GB/s")
WRONG = regex(r"^\s*Verification error @ element (\d{1,12}): val = (\S{1,40}), ref = (\S{1,40})")
END = regex(r"^\s*Test (passed|failed)")
NO_PEERS = regex(r"Peer to Peer access is not available amongst GPUs|waiving test|Waiving test")
BEGIN = regex(f"{FIRST.pattern}|{COUNT.pattern}|{COPY.pattern}|{WRONG.pattern}|{ACCESS.pattern}")
INSIDE = regex(
    f"{BEGIN.pattern}|{END.pattern}|{NO_PEERS.pattern}"
    r"|^\s*(?:Checking (?:for multiple GPUs|GPU\(s\) for support)|Enabling peer access|Disabling peer access"
    r"|Allocating buffers|Creating event handles|Preparing host buffer|Run kernel on GPU|Copy data back to host"
    r"|Shutting down|Two or more GPUs with|> GPU\d|GPU\d+ = |Waiving|Exiting|Peer to Peer)"
)


def parse(lines: list[str]) -> Part:
    access = {(int(m[2]), int(m[4])): m[5] == "Yes" for line in lines if (m := ACCESS.match(line))}
    copy = next((m for line in lines if (m := COPY.search(line))), None)
    wrong = [m for line in lines if (m := WRONG.match(line))]
    ends = [m[1] for line in lines if (m := END.match(line))]
    if copy is None and not wrong and not access and not any(NO_PEERS.search(line) for line in lines):
        raise absent(f"{TOOL} result", "it stops before", AGAIN)
    pair = (int(copy[1]), int(copy[2])) if copy else (0, 1)
    count = _count(lines, access, pair)
    bad: tuple[tuple[int, int], ...] | None = None
    if wrong or "failed" in ends:
        bad = (pair,)
    elif "passed" in ends and count == 2:
        bad = ()
    compared = bool(wrong or ends)
    zeros = bool(wrong) and all(float_is_zero(m[2]) for m in wrong)
    # It copies forth and back in turns, so both directions have the mean of both.
    measured = Measured(
        p2p_uni_gb_s=by_pair(dict.fromkeys((pair, pair[::-1]), float(copy[3]) * GIB), count) if copy else None,
        method=Method(engine="ce") if copy else Method(),
        integrity_bad_pairs=bad,
        damage="zeros" if zeros else None,
    )
    seen = Observations(
        gpus=_gpus(lines, count), p2p_access=by_pair(access, count) if access else None, measured=measured
    )
    return Part(
        facts=Facts(observed=seen),
        looked_at=(f"peer access and data copied between two GPUs ({TOOL})",),
        unread=(left_out(len(lines), len(lines), "it ends before the data was compared", lines[-1]),)
        if copy and not compared
        else (),
    )


def float_is_zero(word: str) -> bool:
    """Whether the program read a zero where it had written something."""
    return word.strip("-") in ("0", "0.0", "0.000000")


def _count(lines: list[str], access: dict[tuple[int, int], bool], pair: tuple[int, int]) -> int:
    reported = next((int(m[1]) for line in lines if (m := COUNT.match(line))), 0)
    named = 1 + max((max(both) for both in (*access, pair)), default=1)
    count = max(reported, named)
    if count > MOST_GPUS:
        raise ImportProblem(f"{TOOL}: {count} GPUs", why="no machine has so many", do=AGAIN)
    return count


def _gpus(lines: list[str], count: int) -> tuple[ObservedGpu, ...]:
    names: dict[int, str] = {}
    for line in lines:
        if match := ACCESS.match(line):
            names |= {int(match[2]): match[1], int(match[4]): match[3]}
    return tuple(ObservedGpu(model=names.get(i)) for i in range(count))


KIND = Kind(
    "simple-p2p",
    "the output of simpleP2P",
    parse,
    holds=MEASUREMENTS,
    hints=("simpleP2P", "cudaMemcpyPeer / cudaMemcpy", "Verification error @ element"),
    blocks=lambda lines: spans(lines, BEGIN, INSIDE, FIRST),
)
