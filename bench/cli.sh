#!/usr/bin/env bash
# Whole-process time of the commands people wait for, beside a peer measured in the same run (hyperfine).
# Peers: a bare Python start for --help; gpustat and nvitop, on the same simulated machine, for topo.
# usage: bench/cli.sh            needs: hyperfine, and pip install gpustat nvitop into .venv
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
out=bench/results/cli-$(date -u +%Y-%m-%d).json
peer() { printf '%s simulate hgx-h100-x8 -- %s' "$bin/gpucheck" "$*"; }
for tool in hyperfine "$bin/gpustat" "$bin/nvitop"; do
  command -v "$tool" >/dev/null || { echo "bench/cli.sh needs $tool (apt install hyperfine; $bin/pip install gpustat nvitop)" >&2; exit 64; }
done
hyperfine --warmup 3 --runs 20 --shell none --export-json "$out" \
  --command-name "python -c pass (peer)" "$bin/python -c pass" \
  --command-name "gpucheck --help" "$bin/gpucheck --help" \
  --command-name "gpucheck topo, 8 GPUs" "$bin/gpucheck topo --simulate hgx-h100-x8" \
  --command-name "gpustat, same machine (peer)" "$(peer "$bin/gpustat" -cp)" \
  --command-name "nvitop -1, same machine (peer)" "$(peer "$bin/nvitop" -1 --ascii)"
echo "written: $out" >&2
