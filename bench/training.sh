#!/usr/bin/env bash
# The training test on a quiet machine: the whole command, twenty clean runs that must find nothing, and what the
# figures cost: usage bench/training.sh [RUNS]
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
RUNS=${1:-20}

echo "gpucheck smoke --framework torch, seconds of the whole process, three times"
for _ in 1 2 3; do
    /usr/bin/env time -f %e "$PYTHON" -m gpucheck smoke --framework torch --format json -o /dev/null
done

echo "$RUNS clean runs: verdicts (wanted: pass, every time) and straggler ratios"
for run in $(seq "$RUNS"); do
    report=$(mktemp)
    "$PYTHON" -m gpucheck smoke --framework torch --format json -o "$report" || true
    "$PYTHON" - "$report" "$run" <<'END'
import json, sys
answer = json.load(open(sys.argv[1]))
(outcome,) = answer["outcomes"]
print(sys.argv[2], answer["verdict"], outcome["performance"]["straggler_ratio"])
END
    rm -f "$report"
done

echo "cost of keeping the phases of 40 steps, share of the run (wanted: below 0.05)"
"$PYTHON" - <<'END'
import tempfile, time
from pathlib import Path
from gpucheck.train.progress import Progress, STEP
from gpucheck.train.smoke import run_smoke
from gpucheck.train.spec import SmokeOptions

outcome = run_smoke(SmokeOptions(visible_devices=""))
steps = sum(outcome.seconds.get(phase, 0.0) for phase in STEP)
progress = Progress(Path(tempfile.mkdtemp()) / "progress", trace=True)
began = time.perf_counter()
for step in range(40):
    for phase in ("load", "forward", "backward", "allreduce", "check", "optimizer", "check"):
        progress.enter(phase, step)
cost = time.perf_counter() - began
print(f"{cost:.4f} s of {steps:.3f} s in steps: {cost / steps:.3f}")
END
