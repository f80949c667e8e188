# Sourced by the benchmarks: what they need, and the head of a result file that says where its numbers come from.
# shellcheck shell=bash
bin=.venv/bin
# As users have it: compiled once, not at every start.
unset PYTHONDONTWRITEBYTECODE

need() { # need PROGRAM HOW-TO-GET-IT
  command -v "$1" >/dev/null || { echo "${0##*/} needs $1 ($2)" >&2; exit 64; }
}

result_head() { # result_head TITLE
  echo "# $1"
  echo
  echo "$(date -u +%Y-%m-%d), $(nproc) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(uname -sr)," \
    "$("$bin/python" -V), gpucheck $("$bin/gpucheck" --version | grep -o '[0-9][0-9.]*'), $(if command -v hyperfine >/dev/null; then hyperfine --version; else echo "without hyperfine"; fi)." \
    "Load average at the end $(cut -d' ' -f1 /proc/loadavg)."
  echo
}
