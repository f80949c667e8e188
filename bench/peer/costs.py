"""What the driver engine costs: import, install size, lines, and the entry points of the simulated driver library."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTS = {
    "the engine": "gpucheck.measure.engines.driver.engine",
    "the engine and cuda.bindings.driver": "gpucheck.measure.engines.driver.engine, cuda.bindings.driver",
}
TIMED = "import time; w, c = time.perf_counter(), time.process_time(); import {}; "
TIMED += "print(time.perf_counter() - w, time.process_time() - c)"
RUNS = 7
LINES = {
    "driver engine, with its kernels": ("gpucheck/measure/engines/driver", ".py", ".ptx"),
    "simulated driver library": ("gpucheck/simulator/cuda", ".c", ".h", ".py"),
}


def seconds(modules: str) -> tuple[float, float]:
    """Wall and processor time of the fastest of several imports, each in a process of its own."""
    words = [sys.executable, "-c", TIMED.format(modules)]
    runs = [tuple(map(float, subprocess.check_output(words, text=True).split())) for _ in range(RUNS)]
    return min(run[0] for run in runs), min(run[1] for run in runs)


def needed(name: str, found: dict[str, int]) -> dict[str, int]:
    """Bytes of a distribution and of all that it requires without extras."""
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in found:
        return found
    try:
        about = distribution(name)
    except PackageNotFoundError:  # its condition excludes this platform
        return found
    files = (Path(str(about.locate_file(file))) for file in about.files or ())
    found[key] = sum(file.stat().st_size for file in files if file.is_file())
    for requirement in about.requires or ():
        if "extra ==" not in requirement:
            needed(re.split(r"[^\w.-]", requirement)[0], found)
    return found


def main() -> None:
    """Print the tables."""
    print("| import of | wall s | processor s |")
    print("|---|---|---|")
    for name, modules in IMPORTS.items():
        print(f"| {name} | {' | '.join(f'{one:.3f}' for one in seconds(modules))} |")
    cuda = needed("cuda-bindings", {})
    print(
        f"\n`cuda-bindings` and what it needs: {sum(cuda.values()) / 1e6:.1f} MB installed ({', '.join(sorted(cuda))})."
    )
    entries = (ROOT / "gpucheck/simulator/cuda/entries.h").read_text(encoding="utf-8")
    names = re.findall(r"^ENTRY\((\w+)", entries, re.MULTILINE)
    print(f"Entry points of the simulated driver library: {len(set(names))} names, {len(names)} versions of them.\n")
    print("| part | lines |")
    print("|---|---|")
    for name, (folder, *endings) in LINES.items():
        files = [file for file in (ROOT / folder).iterdir() if file.suffix in endings]
        print(f"| {name} | {sum(len(file.read_text(encoding='utf-8').splitlines()) for file in files)} |")


if __name__ == "__main__":
    main()
