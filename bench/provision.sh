#!/usr/bin/env bash
# Wall time of make provision in the embedded lab: bare hosts, then converged. One run each: the first cannot repeat.
# Wanted: first run <= 12 min with all downloads (from a clone without .venv and images), converged <= 90 s.
# usage: bench/provision.sh [--from-nothing]     --from-nothing removes this checkout's .venv and the lab's images first
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
lab=gpucheck-bench
export GPUCHECK_LAB_SUBNET=${GPUCHECK_LAB_SUBNET:-10.213.45.0/24}
first="bare hosts, images and packages at hand"
if [ "${1:-}" = --from-nothing ]; then
  first="from a clone without .venv, images and wheels"
  if [ -x "$bin/gpucheck" ]; then "$bin/gpucheck" lab down --name "$lab" --images; fi
  rm -rf .venv .cache
else
  make lab-down LAB="$lab"
fi
out=bench/results/provision-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run="make provision LAB=$lab REPORTS=$work/reports"
hyperfine --runs 1 --export-markdown "$work/first.md" --command-name "make provision, $first" "$run"
hyperfine --runs 3 --export-markdown "$work/again.md" \
  --command-name "make provision, converged" "$run" \
  --command-name "make verify" "make verify LAB=$lab REPORTS=$work/reports"
make lab-down LAB="$lab"
{ result_head "make provision in the embedded lab"; cat "$work/first.md"; tail -n +3 "$work/again.md"; } >"$out"
echo "written: $out" >&2
