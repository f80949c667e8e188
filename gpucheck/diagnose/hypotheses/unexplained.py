"""Numbers that none of the other hypotheses predicts."""

from collections.abc import Iterator
from statistics import median

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import Pair
from gpucheck.model.diagnosis.observations import Matrix
from gpucheck.model.finding.verdict import Verdict

HOST, GPU, PAIR, DIRECTION, SUM = 0.006, 0.004, 0.006, 0.015, 0.004
MEMORY, MEMORY_GUEST = 0.03, 0.15
UNEVEN, LOW, HALF, MOST = 0.87, 0.85, 0.68, 16
ANY = "the numbers of this machine fit no cause that is known"
ANY_OF_GPU = "this GPU's pairs fit no cause that is known"
ANY_OF_PAIR = "only this pair is slow; no known property explains it"
ONE_DIRECTION = (
    "one direction is slow, the other is not: lanes of one direction with errors and retries, or a port with too "
    "few credits"
)
BOTH_AT_ONCE = (
    "each direction alone is as expected, both at the same time are not: they share bandwidth that each should have"
)
SLOW_MEMORY = (
    "host copies are slow for a reason that is not the link's: pageable buffers, one memory channel, encryption "
    "(confidential computing), another NUMA node"
)


def instances(m: Machine) -> Iterator[Instance]:
    """The whole host, a GPU, a pair, or one direction of it: only where it differs from its like."""
    gpus = {row.gpu for row in m.measured.host_device}
    if gpus:
        yield _instance("host", MEMORY_GUEST if m.host.virtual else MEMORY, ("memory",), (), SLOW_MEMORY)
    for i in gpus if len(gpus) > 1 else ():
        yield _instance(m.gpu_label(i), MEMORY / len(gpus), ("memory", i), (), SLOW_MEMORY)
    matrix = m.measured.p2p_uni_gb_s or m.measured.p2p_bidir_gb_s
    if m.count > 1 and matrix:
        yield _instance("host", HOST, ("host",), m.pairs, ANY)
        yield from _of_pairs(m, matrix)


def _of_pairs(m: Machine, matrix: Matrix) -> Iterator[Instance]:
    for i, j in m.pairs:
        there, back = matrix[i][j], matrix[j][i]
        if there and back and min(there, back) < UNEVEN * max(there, back):
            way = (i, j) if there < back else (j, i)
            yield _instance(m.pair_label((i, j)), DIRECTION, ("way", *way), ((i, j),), ONE_DIRECTION)
    for i, j in m.pairs:
        both, alone = m.measured.p2p_bidir_gb_s, m.alone((i, j), staged=False)
        total = (both[i][j] or both[j][i]) if both else None
        if alone and total and total < HALF * alone and m.access[(i, j)] is not False:
            yield _instance(m.pair_label((i, j)), SUM, ("both", i, j), ((i, j),), BOTH_AT_ONCE)
    odd = _slow(m, matrix)
    for pair in odd[:MOST]:
        yield _instance(m.pair_label(pair), PAIR, pair, (pair,), ANY_OF_PAIR)
    for i in {i for pair in odd for i in pair}:
        if sum(i in pair for pair in odd) > 1:
            yield _instance(m.gpu_label(i), GPU, ("gpu", i), m.pairs_with(i), ANY_OF_GPU)


def _slow(m: Machine, matrix: Matrix) -> list[Pair]:
    """Pairs whose better direction is slow for their path class."""
    by_class: dict[str | None, list[float]] = {}
    for i, j in m.pairs:
        by_class.setdefault(m.classes[i, j], []).extend(v for v in (matrix[i][j], matrix[j][i]) if v)
    usual = {cls: median(values) for cls, values in by_class.items() if values}
    best = {(i, j): max(matrix[i][j] or 0.0, matrix[j][i] or 0.0) for i, j in m.pairs}
    return [pair for pair, value in best.items() if value and value < LOW * usual[m.classes[pair]]]


def _instance(subject: str, prior: float, odd: tuple[object, ...], pairs: tuple[Pair, ...], words: str) -> Instance:
    check = {"memory": "host-copies", "both": "p2p-both-ways"}.get(str(odd[0]), "p2p-bandwidth")
    return Instance(
        cause=None,
        subject=subject,
        prior=prior,
        change=Change(odd=frozenset({odd})),
        excludes=f"odd {check} {subject}",
        check=check,
        verdict=Verdict.WARN,
        why=words,
        decide="measure again with nothing else running: gpucheck bandwidth --level full",
        pairs=pairs,
    )


HYPOTHESIS = Hypothesis(
    name="unexplained",
    causes=(),
    title="None of the others",
    possible_when="always for the host; for a GPU, a pair or one direction where its number is below its like",
    predicts="anything: a wide range around half of what is usual",
    prior="0.6 % the host, 0.4 % a GPU, 0.6 % a pair, 1.5 % a direction, 0.4 % a sum",
    never_explains="itself: it names no cause",
    sources=("DistServe#3 for the two plateaus of healthy both-ways sums",),
    instances=instances,
)
