"""Numbers that none of the other hypotheses predicts."""

from collections.abc import Iterator
from statistics import median

from gpucheck.diagnose.hypotheses._hypothesis import Hypothesis
from gpucheck.diagnose.instance import Change, Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import Pair
from gpucheck.model.verdict import Verdict

HOST, GPU, PAIR, DIRECTION, SUM = 0.006, 0.004, 0.006, 0.015, 0.004
MEMORY, MEMORY_GUEST = 0.03, 0.15
UNEVEN, LOW, HALF, MOST = 0.87, 0.85, 0.68, 16
AGAIN = "measure again with nothing else running: gpucheck bandwidth --depth full"


def instances(m: Machine) -> Iterator[Instance]:
    """The whole host, a GPU, a pair, or one direction of it: only where it differs from its like."""
    matrix = m.measured.p2p_uni_gb_s or m.measured.p2p_bidir_gb_s
    yield from _memory(m)
    if m.count < 2 or not matrix:
        return
    yield _instance(
        "host", HOST, frozenset({("host",)}), m.pairs, "the numbers of this machine fit no cause that is known"
    )
    like: dict[object, list[float]] = {}
    for i, j in m.pairs:
        like.setdefault(m.classes[i, j], []).extend(v for v in (matrix[i][j], matrix[j][i]) if v)
    usual = {cls: median(values) for cls, values in like.items() if values}
    odd: list[Pair] = []
    for pair in m.pairs:
        i, j = pair
        there, back = matrix[i][j], matrix[j][i]
        if there and back and min(there, back) < UNEVEN * max(there, back):
            way = (i, j) if there < back else (j, i)
            words = (
                "one direction is slow, the way back is not: lanes of one direction with errors and retries, or a port "
            )
            yield _instance(
                m.pair_label(pair), DIRECTION, frozenset({("way", *way)}), (pair,), words + "with too few credits"
            )
        value = max(there or 0.0, back or 0.0)
        if value and value < LOW * usual[m.classes[pair]]:
            odd.append(pair)
    yield from _sums(m)
    for pair in odd[:MOST]:
        yield _instance(
            m.pair_label(pair),
            PAIR,
            frozenset({pair}),
            (pair,),
            "this pair alone is slow, and nothing that is known of it says why",
        )
    for i in {i for pair in odd for i in pair}:
        mine = m.pairs_with(i)
        if len(set(odd) & set(mine)) > 1:
            yield _instance(
                m.gpu_label(i), GPU, frozenset({("gpu", i)}), mine, "this GPU's pairs fit no cause that is known"
            )


def _sums(m: Machine) -> Iterator[Instance]:
    """Pairs whose sum of both directions at once is far below the two directions alone."""
    both = m.measured.p2p_bidir_gb_s
    for pair in m.pairs if both else ():
        alone, total = m.alone(pair, staged=False), both[pair[0]][pair[1]] or both[pair[1]][pair[0]]  # type: ignore[index]
        if alone and total and total < HALF * alone and m.access(pair) is not False:
            words = (
                "each direction alone is as it should be, both at once are not: the pair shares what each should have"
            )
            key = frozenset({("both", *pair)})
            yield _instance(m.pair_label(pair), SUM, key, (pair,), words, "p2p-both-ways")


def _memory(m: Machine) -> Iterator[Instance]:
    """Slow copies to and from the host: pageable buffers, one memory channel, encryption, a far NUMA node."""
    gpus = {row.gpu for row in m.measured.host_device}
    words = (
        "host copies are slow for a reason that is not the link's: pageable buffers, one memory channel, encryption "
    )
    words += "(confidential computing), another NUMA node"
    if gpus:
        prior = MEMORY_GUEST if m.host.virtual else MEMORY
        yield _instance("host", prior, frozenset({("memory",)}), (), words, "host-copies")
    for i in gpus if len(gpus) > 1 else ():
        yield _instance(m.gpu_label(i), MEMORY / len(gpus), frozenset({("memory", i)}), (), words, "host-copies")


def _instance(
    subject: str, prior: float, odd: frozenset[tuple[object, ...]], pairs: tuple[Pair, ...], words: str,
    check: str = "p2p-bandwidth",
) -> Instance:  # fmt: skip
    return Instance(
        cause=None,
        subject=subject,
        prior=prior,
        change=Change(odd=odd),
        excludes=f"odd {check} {subject}",
        check=check,
        verdict=Verdict.WARN,
        why=words,
        decide=AGAIN,
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
