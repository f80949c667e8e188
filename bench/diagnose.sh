#!/usr/bin/env bash
# Whole-process time of gpucheck diagnose on eight GPUs; wanted: <= 0.4 s. Copies: bench/copies.sh.
# usage: bench/diagnose.sh       needs: hyperfine
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
out=bench/results/diagnose-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$bin/python" - "$work" <<'PYTHON'
import json
import sys
from pathlib import Path

from tests.diagnose.machines import Shape, healthy, slow_uplink

for name, seen in (("healthy", healthy(Shape(8, 4, 2, 4))), ("slow-uplink", slow_uplink(Shape(8, 4, 2, 4)))):
    Path(sys.argv[1], f"{name}.yml").write_text(json.dumps(seen))
PYTHON
# 2 is the slow uplink, and an answer.
hyperfine --warmup 2 --runs 10 --shell none --ignore-failure --export-markdown "$work/diagnose.md" \
  --command-name "python -c pass (floor)" "$bin/python -c pass" \
  --command-name "gpucheck diagnose, 8 healthy GPUs" "$bin/gpucheck diagnose --observations $work/healthy.yml" \
  --command-name "gpucheck diagnose, a slow uplink" "$bin/gpucheck diagnose --observations $work/slow-uplink.yml"
{
  result_head "gpucheck diagnose"
  cat "$work/diagnose.md"
} >"$out"
echo "written: $out" >&2
