"""Equal findings of several GPUs, grouped: one cause is one block, not 72.

A text that differs only by the GPU that it is about is the same text: the bus id and the name of a finding's own GPU
are replaced before findings are compared.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpucheck.model import Finding, Verdict, where
from gpucheck.model.finding.naming import BUS_ID, bus_ids
from gpucheck.model.finding.root_cause import Fault
from gpucheck.render.words import observed, ranges

# Of more GPUs than this the bus ids are left out: they are in the JSON.
NAMED = 8
# So few GPUs that are well are named instead of the many that are not.
FEW = 3
# Places of a GPU's bus id and name in a compared text; private characters, which no host's text keeps when printed.
OWN_ID, OWN_NAME = ("\ue000", "\ue001"), ("\ue002", "\ue003")
ANY_ID, ANY_NAME = "[\ue000\ue001]", "[\ue002\ue003]"
OPTION = re.compile(rf"(nvidia-smi\b[^;|\n]*?) (-i|--id)([ =]){ANY_ID}")


class Group(NamedTuple):
    """Equal findings. where: the GPUs. seen: the first line, with what was expected.

    evidence: what differs only by the GPU is one line. all_evidence: every line.
    also: what other checks found of the same fault.
    """

    findings: tuple[Finding, ...]
    checks: tuple[str, ...]
    where: str
    seen: str
    why: str
    fix: str
    evidence: tuple[str, ...]
    all_evidence: tuple[str, ...]
    also: tuple["Group", ...] = ()

    @property
    def first(self) -> Finding:
        """The one that stands for all: verdict, cause and confidence are the same."""
        return self.findings[0]

    @property
    def headline(self) -> str:
        """``GPU 2 (0000:4c:00.0): 17 NVLinks active, expected 18``."""
        return ": ".join(filter(None, (self.where, self.seen)))

    @property
    def every_check(self) -> tuple[str, ...]:
        """The checks that found the fault, the leading one first."""
        return tuple(dict.fromkeys(check for group in (self, *self.also) for check in group.checks))


def group_faults(faults: Iterable[Fault], gpus: Iterable[str] = ()) -> list[Group]:
    """Return one group per fault, the same fault of several GPUs once. gpus: bus ids of all GPUs of the host."""
    everyone, also = frozenset(gpus), {id(fault.lead): fault for fault in faults}
    return [
        group._replace(
            also=tuple(group_equal((one for lead in group.findings for one in also[id(lead)].also), everyone))
        )
        for group in group_equal((fault.lead for fault in also.values()), everyone)
    ]


def group_equal(findings: Iterable[Finding], gpus: Iterable[str] = ()) -> list[Group]:
    """Return the groups in the order of their first findings. gpus: bus ids of all GPUs of the host."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        # Two passed checks are two results, even with equal text.
        check = finding.check if finding.verdict is Verdict.PASS else ""
        groups.setdefault((check, *same_text(finding)), []).append(finding)
    everyone = frozenset(gpus)
    return [_group(members, everyone) for members in groups.values()]


def same_text(finding: Finding) -> tuple[object, ...]:
    """Return what two findings must have in common to be one block."""
    texts = (finding.seen, finding.wanted, finding.why, finding.fix)
    return (
        finding.verdict,
        finding.cause,
        finding.confidence,
        finding.action,
        finding.owner,
        finding.unit,
        *(_without_gpu(text, finding) if isinstance(text, str) else (type(text), text) for text in texts),
    )


def _group(findings: list[Finding], everyone: frozenset[str]) -> Group:
    is_all = len(everyone) > 1 and {f.subject for f in findings} == {f"gpu:{bus_id}" for bus_id in everyone}

    option = "" if is_all else _listed(findings)

    def combined(texts: Sequence[str]) -> str:
        return _shared(texts, findings, option)

    all_evidence = {line: finding for finding in findings for line in finding.evidence}
    lines: dict[str, list[str]] = {}
    for line, finding in all_evidence.items():
        lines.setdefault(_without_gpu(line, finding), []).append(line)
    return Group(
        findings=tuple(findings),
        checks=tuple(dict.fromkeys(finding.check for finding in findings)),
        where=where_all(findings, everyone),
        seen=combined([observed(finding) for finding in findings]),
        why="" if findings[0].why == observed(findings[0]) else combined([finding.why for finding in findings]),
        fix=combined([finding.fix for finding in findings]),
        evidence=tuple(
            originals[0] if len(originals) == 1 else _of_all(line, option) for line, originals in lines.items()
        ),
        all_evidence=tuple(all_evidence),
    )


def where_all(findings: Sequence[Finding], everyone: frozenset[str] = frozenset()) -> str:
    """Return what the findings are about: ``GPU 2 (0000:4c:00.0)``, ``all 72 GPUs``, ``GPU 0-3,8-11``."""
    by_subject = {finding.subject: finding for finding in findings}
    kinds = {subject.partition(":")[0] for subject in by_subject} - {"host"}
    about = [finding for subject, finding in by_subject.items() if subject != "host"]
    if len(about) > 1 and kinds == {"gpu"}:
        return _gpus(about, everyone)
    if len(about) > 1 and kinds == {"pair"} and len(about) == len(everyone) * (len(everyone) - 1) // 2:
        return f"all {len(about)} GPU pairs"
    more = f" and {len(about) - NAMED} more" if len(about) > NAMED else ""
    return ", ".join(where(finding) for finding in about[:NAMED]) + more


def _gpus(findings: list[Finding], everyone: frozenset[str]) -> str:
    """Several GPUs, each named once."""
    found = {bus_ids(finding.subject)[0]: finding for finding in findings}
    well = sorted(everyone - found.keys())
    if not well and len(found) == len(everyone):
        return f"all {len(found)} GPUs" if len(found) > 2 else "both GPUs"
    if len(found) <= NAMED:
        return ", ".join(map(where, found.values()))
    if everyone and len(well) <= FEW and found.keys() <= everyone:
        return f"{len(found)} of {len(everyone)} GPUs (all but {', '.join(well)})"
    indexes = [finding.gpu_index for finding in found.values() if finding.gpu_index is not None]
    if len(indexes) == len(found):
        return f"GPU {ranges(sorted(indexes))}"
    return ", ".join(list(found)[:NAMED]) + f" and {len(found) - NAMED} more"


def _without_gpu(text: str, finding: Finding) -> str:
    """The text with the finding's own GPUs taken out."""
    indexes = finding.gpu_index, finding.peer_index
    for bus_id, index, own_id, own_name in zip(bus_ids(finding.subject), indexes, OWN_ID, OWN_NAME, strict=False):
        if BUS_ID.fullmatch(bus_id):
            text = text.replace(f"GPU {index} ({bus_id})", own_name).replace(bus_id, own_id)
        if index is not None:
            text = re.sub(rf"\bGPU {index}\b", own_name, text)
    return text


def across_hosts(findings: Sequence[Finding], texts: Sequence[str], *, is_all: bool) -> str:
    """Return one text for findings of several hosts, where bus ids differ. is_all: each host has it on all GPUs."""
    return _shared(texts, findings, "" if is_all else "BUS_ID")


def _shared(texts: Sequence[str], findings: Sequence[Finding], option: str) -> str:
    return texts[0] if len(set(texts)) == 1 else _of_all(_without_gpu(texts[0], findings[0]), option)


def _of_all(text: str, option: str) -> str:
    """Return the text of one finding for all GPUs. option: value of nvidia-smi -i; empty for all GPUs (no option)."""
    text = OPTION.sub(lambda found: f"{found[1]} {found[2]}{found[3]}{option}" if option else found[1], text)
    return re.sub(ANY_NAME, "each GPU", re.sub(ANY_ID, "BUS_ID", text))


def _listed(findings: Sequence[Finding]) -> str:
    """The GPUs as ``nvidia-smi -i`` takes them."""
    ids = dict.fromkeys(bus_ids(finding.subject)[0] for finding in findings if bus_ids(finding.subject))
    indexes = [finding.gpu_index for finding in findings if finding.gpu_index is not None]
    return ",".join(map(str, indexes) if len(ids) > NAMED and len(indexes) == len(findings) else ids)
