"""Whether a statement of a diagnosis, a cause about a subject, is true of a generated machine.

The rule, strict on purpose. A statement is right if the truth has an entry with the same cause key, and one of:

1. The subjects are equal.
2. The statement is about ``host``: the entry may be about any subject (the cause is somewhere in this host).
3. The entry is about ``host``: the cause holds everywhere, so any subject of the statement is right.
4. The entry is about a GPU (or the statement is about a bridge with only that GPU below it, which is the other end of
   its link), and the statement is about a pair with that GPU in it, or about that GPU's NVLink or PCIe link.
5. The entry is about a bridge: the statement is about a bridge with the same GPUs below it (the other end of the
   link), or about one of the GPUs below it.

Pairs are not inferred from bridges, nor GPUs from pairs: the truth lists every pair that a cause affects.
``expected-limit`` says that nothing is wrong: it is right if no fault of the truth touches the subject by these rules.
"""

from tests.diagnose.generator import Case
from tests.diagnose.generator.limits import is_fault


def is_true(case: Case, cause: str, subject: str) -> bool:
    """Whether `cause` about `subject` is right on this machine."""
    if cause == "expected-limit":
        return not any(is_fault(fault) and _same(case, about, subject) for fault, about in case.truth)
    return any(cause == true_cause and _same(case, about, subject) for true_cause, about in case.truth)


def _same(case: Case, about: str, subject: str) -> bool:
    if about == subject or "host" in (about, subject):
        return True
    subject_kind, subject_gpus = _named(case, subject)
    about_kind, about_gpus = _named(case, about)
    if about_kind == "gpu":
        return about_gpus <= subject_gpus if subject_kind == "pair" else about_gpus == subject_gpus
    if about_kind == "link" and about_gpus:
        return (
            subject_gpus == about_gpus
            if subject_kind == "link"
            else subject_kind == "gpu" and subject_gpus <= about_gpus
        )
    return False


def _named(case: Case, subject: str) -> tuple[str, frozenset[str]]:
    """The kind of a subject and the GPUs it names; those below it for a bridge, none if they are unknown."""
    kind, _, name = subject.partition(":")
    if kind == "gpu":
        return kind, frozenset({name})
    if kind == "pair":
        return kind, frozenset(gpu for gpu in case.gpus if gpu in name.split("-"))
    end = name.split("/")[0]
    below = frozenset({end}) if end in case.gpus else case.behind.get(end, frozenset())
    return "gpu" if len(below) == 1 else kind, below
