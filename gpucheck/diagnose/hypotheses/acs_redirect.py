"""Bridges send peer traffic up to the root complex (Access Control Services)."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses import Hypothesis
from gpucheck.diagnose.hypotheses._links import one_or_host, other_way, over_pcie
from gpucheck.diagnose.instance import Instance
from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.paths import NEAR
from gpucheck.diagnose.readings import hang_of

PRIOR, READ, GUEST = 0.025, 1.5, 0.01


def instances(m: Machine) -> Iterator[Instance]:
    """A bridge redirects only what passes it: pairs below a switch, and those whose path is not known."""
    peers, hang = over_pcie(m), hang_of(m)
    pairs = tuple(pair for pair in peers if m.classes[pair] in NEAR or m.shared_hops(*pair))
    pairs = pairs or tuple(pair for pair in peers if m.classes[pair] is None)
    only_hangs = bool(m.acs and hang and peers) or (m.count < 2 and bool(m.acs or hang))
    if m.acs is False or not (pairs or only_hangs):
        return
    named = f" ({', '.join(m.acs_bridges[:4])})" if m.acs_bridges else ""
    yield other_way(
        "acs-redirect",
        pairs,
        "redirected",
        symptoms={"hang": 0.3 if m.acs else 0.15, "hang with P2P off": 0.02, "wrong data": 0.02, "damage zeros": 0.2},
        subject=one_or_host(m, pairs),
        prior=READ if m.acs else GUEST if m.host.virtual else PRIOR,
        wanted="copies that stay below the switch",
        why=f"bridges redirect peer traffic to the root complex{named}: copies between these GPUs go up and back",
        decide="sudo lspci -vvv | grep -e ^[0-9a-f] -e ACSCtl shows ReqRedir+ or CmpltRedir+ on a bridge of the path",
        evidence=m.acs_bridges,
        direct=bool(m.acs and m.acs_bridges),
    )


HYPOTHESIS = Hypothesis(
    name="acs-redirect",
    causes=("acs-redirect",),
    title="Bridges that redirect peer traffic",
    possible_when="a bridge is above both GPUs (PIX, PXB) or the path is not known, and the registers were not read as "
    "clear; cards of a product with NVLink only where something hangs and neither matrix nor number shows NVLink",
    predicts="copies between GPUs below one switch at 0.25 to 0.65 of the raw rate, often below staged ones; others, "
    "staged and host copies as usual; sometimes a hang with P2P only",
    prior="2.5 %; 1.5 to 1 where the registers redirect; 1 % in a guest",
    never_explains="slow pairs that share no bridge, slow host copies, a hang with P2P off",
    sources=("nccl#814", "nccl#199", "Linux drivers/pci/p2pdma.c", "NCCL user guide"),
    cases=("nccl#667",),
    instances=instances,
)
