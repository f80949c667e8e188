"""A board that splits its slots, or an older board: fewer lanes or a lower generation than the card's, on purpose."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import (
    UNDER_LOAD,
    candidates,
    impossible,
    maybe_by_design,
    other_link,
    pairs_of,
)
from gpucheck.diagnose.instance import Change, Instance, Link
from gpucheck.diagnose.machine import Machine
from gpucheck.model.finding.verdict import Verdict

ALL_HALF, OLDER, OLDER_READ, ONE_HALF, CARD = 0.03, 0.04, 0.3, 0.006, 0.04
HALVES, HALF = 200.0, 10.0  # x8 was read, and the width of the slot is unknown
SLOWER_CARD = (0.90, 0.82)


def instances(m: Machine) -> Iterator[Instance]:
    """Only where the slot's own limits are not known; a card somewhat slower than the others always."""
    every = tuple(range(m.count))
    if m.count > 1 and not any(m.is_slot_known(i) for i in every):
        tops = {(m.link[i].max_generation, m.link[i].max_width) for i in every}
        generation, width = next(iter(tops)) if len(tops) == 1 else (None, None)
        if width == 16:
            yield from _slots(m, every, (None, 8), ALL_HALF, "every slot gives x8")
        for lower in (1, 2) if generation else ():
            if generation and generation - lower >= 2:
                yield from _older(m, every, generation - lower, OLDER / lower**2)
        for i in candidates(m) if m.count < 9 and width == 16 else ():
            yield from _slots(m, (i,), (None, 8), ONE_HALF, "the board gives this slot x8")
    halves = [i for i in every if maybe_by_design(m, i) and not m.is_narrow_by_design(i)]
    for i in halves:
        yield from _slots(m, (i,), (None, m.gpu(i).pcie.width), HALVES if len(halves) > 1 else HALF, "the slot has x8")
    for i in candidates(m) if m.count > 2 else ():
        yield from (_slower(m, i, part) for part in SLOWER_CARD)


def _older(m: Machine, every: tuple[int, ...], generation: int, prior: float) -> Iterator[Instance]:
    read = all(m.gpu(i).pcie.gen == generation and m.gpu(i).pcie.read == "load" for i in every)
    words = f"the board has PCIe generation {generation}"
    prior = OLDER_READ if read else prior
    return _slots(m, every, (generation, None), prior, words, seen=f"Gen{generation}", cause="expected-limit")


def _slots(
    m: Machine, gpus: tuple[int, ...], link: Link, prior: float, words: str, *,
    seen: str = "x8", cause: str = "narrow-by-design",
) -> Iterator[Instance]:  # fmt: skip
    """Nothing where more was seen to pass than such links carry."""
    limits = [(link[0] or m.link[i].max_generation, link[1] or m.link[i].max_width) for i in gpus]
    if not any(impossible(m, i, *limit) for i, limit in zip(gpus, limits, strict=True)):
        yield other_link(
            m,
            cause,
            gpus,
            link,
            prior=prior,
            verdict=Verdict.PASS,
            seen=seen,
            why=f"{words}, as desktop boards do with two cards, so copies reach that and no more",
            decide=f"{UNDER_LOAD} shows the link's current and maximum width and generation; the board's manual the "
            "slot's",
        )


def _slower(m: Machine, i: int, part: float) -> Instance:
    return Instance(
        cause="expected-limit",
        subject=m.gpu_label(i),
        prior=CARD / len(SLOWER_CARD),
        change=Change(parts={i: part}),
        excludes=f"link {i}",
        verdict=Verdict.PASS,
        seen=f"about {1 - part:.0%} slower with every peer",
        why=slower_card(1 - part),
        decide="another slot for this card, or lspci -vv (MaxPayload, retries) on its port, shows what differs",
        pairs=pairs_of(m, i),
    )


def slower_card(part: float) -> str:
    """Why one card is slower than the others by this part, and why that is no fault."""
    return (
        f"{part:.0%} slower with every peer, near and far: a cause of this device (link, root port or slot), not of "
        "the path; within what healthy cards of one machine differ by"
    )


HYPOTHESIS = Hypothesis(
    name="narrow-by-design",
    causes=("narrow-by-design", "expected-limit"),
    title="Slots with fewer lanes, older boards, one slower card",
    possible_when="the slot's limits are not known (x8 or an older generation), or one card is slower by a tenth",
    predicts="the same numbers as lost lanes or a lower generation, on all cards or on one; for one slower card 0.8 to "
    "0.95 of the others in every number of its own link",
    prior="3 % all slots x8, 4 % an older board, 0.6 % one slot x8, 4 % a slower card",
    never_explains="x4 or less on a single card, copies slower than staged ones, wrong data",
    sources=("rtx6kpro pcie-bandwidth", "nvidia-smi captures of desktop boards"),
    cases=("rtx6kpro pcie-bandwidth, one card 10 % slower (healthy)",),
    instances=instances,
)
