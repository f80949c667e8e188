"""python -m gpucheck."""

from gpucheck.cli import main

main()
