#!/usr/bin/env bash
# Container images: from `docker run` to the answer of `gpucheck image`, and builds cold, unchanged and after a change
# of gpucheck. Wanted: answer <= 2.5 s; CPU build <= 240 s cold with its wheels at hand, <= 10 s unchanged.
# usage: bench/images.sh [VARIANT]   (default torch-cpu)   needs: hyperfine, Docker, the variant's wheels downloaded once
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
need docker "apt install docker.io"
variant=${1:-torch-cpu}
out=bench/results/images-$variant-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$bin/gpucheck" image build "$variant" >"$work/built"
tag=$(cut -d' ' -f1 "$work/built")
run="docker run --rm --network none $tag"
# 3 is the missing GPU of a CUDA variant, and an answer.
hyperfine --time-unit millisecond --warmup 2 --runs 10 --shell none --ignore-failure --export-markdown "$work/start.md" \
  --command-name "container that does nothing (floor)" "$run true" \
  --command-name "gpucheck image" "$run gpucheck image" \
  --command-name "gpucheck image --level quick" "$run gpucheck image --level quick" \
  --command-name "import of the framework (for comparison)" "$run python -c 'import ${variant%%-*}'"
hyperfine --time-unit millisecond --warmup 1 --runs 3 --shell none --export-markdown "$work/same.md" \
  --command-name "build, nothing changed" "$bin/gpucheck image build $variant"
# A line in the README is in gpucheck's wheel and in nothing else.
cp README.md "$work/README.md"
trap 'cp "$work/README.md" README.md; rm -rf "$work"' EXIT
hyperfine --time-unit millisecond --runs 1 --shell none --export-markdown "$work/change.md" --prepare "sh -c 'echo >>README.md'" \
  --command-name "build, gpucheck changed" "$bin/gpucheck image build $variant"
cp "$work/README.md" README.md
# Cold: no layer of ours is left; the base and the wheels are at hand.
hyperfine --time-unit millisecond --runs 1 --shell none --export-markdown "$work/cold.md" \
  --prepare "sh -c 'docker rmi -f $tag gpucheck/build-stage:$variant; docker image prune -f --filter label=gpucheck.images'" \
  --command-name "build, cold" "$bin/gpucheck image build $variant"
{
  result_head "Container image $variant"
  cat "$work/start.md"
  for part in same change cold; do tail -n +3 "$work/$part.md"; done
  echo
  sed "s,$PWD/,," "$work/built"
} >"$out"
echo "written: $out" >&2
