"""The hypotheses as a page for people, from the hypotheses themselves."""

import re

from gpucheck.diagnose.hypotheses import Hypothesis, all_hypotheses

HEAD = """<!-- Made by: gpucheck diagnose --hypotheses -o docs/diagnose-hypotheses.md -->
# What a diagnosis weighs

`gpucheck diagnose`, `verify` and `bandwidth` explain the numbers of a machine in the same way:

1. Each hypothesis below is a family of causes. It lists the ways in which it may be true on this machine, each with the
   probability that it has before any number is observed (its prior).
2. An explanation is one of these ways, several of them together, or none: a machine without a fault. It predicts every
   number and every reading, as a range where the number is not exact.
3. What was measured and read is compared with each prediction. The closer it comes to one explanation and the farther
   it lies from the others, the more probable that explanation is.
4. The findings name the most probable explanation, its probability, the other causes that fit, and the reading that
   would distinguish them. A cause is "certain" only if a register, a return code, a counter or a byte compare names it.

`gpucheck diagnose -v` prints the explanations with what the first two predicted, `--format html` draws it, and
`gpucheck explain CAUSE` prints what is below for one cause. How often a stated probability was right, on machines with
known faults: [calibration](diagnose-calibration.md). Link rates and path factors are those of
`gpucheck/knowledge/links.yml`, meanings and remedies of the causes those of `gpucheck/knowledge/causes.yml`.
"""
TABLE = "| hypothesis | causes |\n|---|---|"
ISSUE = re.compile(r"^([\w.-]+)#(\d+)$")
# Short names of issues, as the causes use them.
OWNERS = {
    "nccl": "NVIDIA/nccl",
    "nccl-tests": "NVIDIA/nccl-tests",
    "cuda-samples": "NVIDIA/cuda-samples",
    "open-gpu-kernel-modules": "NVIDIA/open-gpu-kernel-modules",
    "gpu-operator": "NVIDIA/gpu-operator",
    "azhpc-images": "Azure/azhpc-images",
    "gpud": "leptonai/gpud",
    "club-3090": "noonghunna/club-3090",
    "pytorch": "pytorch/pytorch",
    "hwloc": "open-mpi/hwloc",
    "jan": "janhq/jan",
    "aws-k8s-tester": "aws/aws-k8s-tester",
}


def hypotheses_page() -> str:
    """The page as Markdown: how it works, a table of all hypotheses, then each."""
    hypotheses = all_hypotheses()
    rows = (f"| [{one.name}](#{_anchor(one)}): {one.title} | {_keys(one)} |" for one in hypotheses)
    lines = [HEAD, *([TABLE, *rows, ""] if hypotheses else [])]
    for one in hypotheses:
        lines += [f"## {_heading(one)}", ""]
        lines += [f"- Causes: {_keys(one)}"]
        lines += [f"- {label}: {text}" for label, text in fields(one)]
        lines += [
            f"- Sources: {'; '.join(map(_linked, one.sources))}",
            f"- Real machines: {'; '.join(map(_linked, one.cases)) or 'none published; simulated ones only'}",
            "",
        ]
    return "\n".join(lines).rstrip("\n") + "\n"


def fields(hypothesis: Hypothesis) -> list[tuple[str, str]]:
    """Describe a hypothesis, as pairs of (label, text)."""
    return [
        ("Possible when", hypothesis.possible_when),
        ("Predicts", hypothesis.predicts),
        ("Prior", hypothesis.prior),
        ("Never explains", hypothesis.never_explains),
    ]


def _keys(hypothesis: Hypothesis) -> str:
    return ", ".join(f"`{cause}`" for cause in hypothesis.causes) or "none: a machine without a fault"


def _heading(hypothesis: Hypothesis) -> str:
    return f"{hypothesis.name}: {hypothesis.title}"


def _anchor(hypothesis: Hypothesis) -> str:
    """The heading's anchor as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", _heading(hypothesis).lower()).replace(" ", "-")


def _linked(source: str) -> str:
    issue = ISSUE.match(source)
    owner = OWNERS.get(issue[1]) if issue else None
    return f"[{source}](https://github.com/{owner}/issues/{issue[2]})" if issue and owner else source
