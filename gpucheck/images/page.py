"""Generate the table of docs/images.md from the versions file; a test compares them."""

from gpucheck.images.versions import Versions, tag
from gpucheck.knowledge import code_runs
from gpucheck.knowledge.gpus import gpu_table

PAGE = "docs/images.md"
# Triton generates no code for GPUs below this one, whatever the build (rule R12 of the stack).
COMPILED = 70
BEGIN, END = "<!-- variants: made by `gpucheck image versions --update` -->", "<!-- end of variants -->"


def table(versions: Versions) -> str:
    """Return one Markdown row per variant."""
    head = ["variant", "framework", "CUDA", "cuDNN", "NCCL", "driver", "serves", "wheels", "platforms", "budget", "tag"]
    rows = []
    for name, row in versions.variants.items():
        filled = row.filled
        built = f" (built for {filled.built_for})" if filled.cuda and filled.built_for != filled.cuda else ""
        rows.append(
            [
                name,
                f"{row.framework} {filled.version}",
                f"{filled.cuda}{built}" if filled.cuda else "none",
                filled.cudnn or "none",
                filled.nccl or "none",
                f"{filled.driver_floor} or newer" if filled.driver_floor else "none needed",
                served(filled.code),
                "PyPI" if filled.index == "pypi" else f"PyTorch's `{filled.index}`",
                ", ".join(platform.removeprefix("linux/") for platform in filled.platforms),
                f"{row.size_budget_mb / 1000:.1f} GB",
                f"`{tag(row, versions.base, stand_in=False)}`",
            ]
        )
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def purpose(framework: str, code: tuple[str, ...], driver_floor: str | None) -> str:
    """Return the purpose of an image as one line: GPU generations, driver, and limits."""
    if not code:
        return "for hosts without a GPU"
    old = framework == "torch" and any(int(name.partition("_")[2]) < COMPILED for name in code)
    limit = f"; torch.compile from compute capability {COMPILED / 10} on" if old else ""
    return f"for {served(code)} with driver {driver_floor} or newer{limit}"


def served(code: tuple[str, ...]) -> str:
    """Return the GPU generations that a build has machine code for, oldest first."""
    archs = tuple(int(name.partition("_")[2]) for name in code)
    found = sorted(
        {
            (gpu.compute_capability, gpu.architecture)
            for gpu in gpu_table().gpus
            if code_runs(gpu.compute_capability, archs)
        }
    )
    names = dict.fromkeys(name for _, name in sorted(found, key=lambda row: tuple(map(int, row[0].split(".")))))
    return ", ".join(names) or "no GPU"


def fill_page(text: str, versions: Versions) -> str:
    """Return the page with its table generated again. Raises ValueError if the page lacks the marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no lines {BEGIN!r} and {END!r}. Put them around the table.")
    return f"{before}{BEGIN}\n\n{table(versions)}\n{END}{after}"
