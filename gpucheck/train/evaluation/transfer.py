"""Evaluate the checked copies between devices: one finding per direction. Pure."""

from collections.abc import Iterator

from gpucheck.model import Finding
from gpucheck.model.smoke import Copy, SmokeResult
from gpucheck.train.evaluation.finding_text import finding

DAMAGE = {
    "untouched": "nothing arrived, although the copy was reported done",
    "zeros": "zeros arrived, which is how translated addresses look (IOMMU)",
    "other": "other data arrived than was sent",
}


def evaluate_transfer(result: SmokeResult) -> Iterator[Finding]:
    """Yield one finding per direction; a wrong byte in any of its copies fails it."""
    for source, target in dict.fromkeys((copy.source, copy.target) for copy in result.copies):
        copies = [copy for copy in result.copies if (copy.source, copy.target) == (source, target)]
        yield _direction(result, source, target, copies)


def _direction(result: SmokeResult, source: str, target: str, copies: list[Copy]) -> Finding:
    wrong = next((copy for copy in copies if copy.wrong), None)
    evidence = tuple(_describe(copy) for copy in copies)
    if wrong is None:
        whole = sum(copy.bytes for copy in copies)
        best = max((copy.gb_s for copy in copies if copy.gb_s is not None), default=None)
        rate = f", up to {best:.3g} GB/s" if best is not None else ""
        who = " and ".join(copies[0].checked_by)
        path = {"peer access": ", by peer access", "host memory": ", through host memory", None: ""}[copies[0].path]
        seen = f"{source} to {target}: {len(copies)} copies of {whole / 2**20:.3g} MiB together right{path}{rate}"
        return finding(result, seen, f"every byte as sent, checked by {who}", evidence=evidence)
    on_cpu = result.placement == "cpu"
    return finding(
        result,
        f"{source} to {target}: {wrong.wrong} of {wrong.bytes} bytes wrong, the first at {wrong.first_wrong}",
        "every byte as sent",
        wrong=DAMAGE.get(wrong.damage, DAMAGE["other"]),
        fix="suspect the host's memory: run a memory test"
        if on_cpu
        else "look at IOMMU and ACS with: gpucheck verify; until then forbid P2P (NCCL_P2P_DISABLE=1 covers NCCL only)",
        cause="data-corruption",
        confidence="certain",
        evidence=evidence,
    )


def _describe(copy: Copy) -> str:
    rate = f", {copy.gb_s:.3g} GB/s" if copy.gb_s is not None else ""
    state = f"{copy.wrong} wrong" if copy.wrong else "right"
    return f"{copy.source} to {copy.target}: {copy.bytes} bytes {state}{rate}"
