"""Samples of lspci, module, dcgmi, fabric and rdma output, as published."""

from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[2] / "data" / "pastes"
OURS = ("lspci", "module", "dcgmi", "fabric", "perftest", "ib", "rdma")
RAW = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["raw"]
    for path in sorted(FOLDER.glob("*.yml"))
    if path.stem.startswith(OURS)
}
H100 = RAW["lspci-h100-vvv-two-switches"]
