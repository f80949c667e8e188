"""The rules as a page for people, from the rules themselves."""

import re

from gpucheck.diagnose.rules import all_rules

HEAD = """<!-- Made by: gpucheck diagnose --rules -o docs/diagnose-rules.md -->
# The rules of a diagnosis

`gpucheck diagnose` asks these in this order. What one rule explains, later ones leave alone, so that a root cause is
told once; what none explains is reported without a cause. Link rates and path factors are those of
`gpucheck/knowledge/links.yml`, meanings and remedies of the causes those of `gpucheck/knowledge/causes.yml`.
"""
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


def rules_page() -> str:
    """The page as Markdown."""
    lines = [HEAD]
    for rule in all_rules():
        lines += [f"## {rule.name}: {rule.title}", ""]
        lines += [f"- Looks at: {rule.looks_at}", f"- Formula: {rule.formula}"]
        lines += [f"- Read in: {'; '.join(map(_linked, rule.sources))}"]
        lines += [
            f"- Real machines: {'; '.join(map(_linked, rule.cases)) or 'none published; simulated ones only'}",
            "",
        ]
    return "\n".join(lines)


def _linked(source: str) -> str:
    issue = ISSUE.match(source)
    owner = OWNERS.get(issue[1]) if issue else None
    return f"[{source}](https://github.com/{owner}/issues/{issue[2]})" if issue and owner else source
