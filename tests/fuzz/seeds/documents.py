"""What a person writes in YAML or CSV, and keys."""

import base64
import json
from functools import cache
from pathlib import Path

import yaml

from tests.diagnose import cases

ROOT = Path(__file__).parents[3]
# verify --expect.
EXPECTATIONS = b"""schema: gpucheck.expectations/1
versions: {driver: '>=570,<590', cuda: '13', torch: '2.7', kernel_module: open}
gpus:
  count: 2
  model: P100
  models: {P100 PCIe 16GB: 2}
  memory_mib: 16000
  vbios: 96.00.AF.00.01
  ecc: true
  mig: false
  persistence: true
  compute_mode: default
  power_limit_w: 250
  nvlinks: 0
  pcie_generation: 3
  pcie_width: 16
pairs: {PIX: 1}
floors: {p2p_uni_gb_s: {PIX: 10}, p2p_bidir_gb_s: 18, h2d_gb_s: 10, d2h_gb_s: 10}
ceilings: {p2p_latency_us: {PIX: 12}}
"""
# fleet report --labels.
CSV = b'host,rack,switch\nnode01,r01,s1\nnode02,r01,s1\nnode03,r02,"s,2"\n'
SPEC = b"""schema: gpucheck.spec/1
driver: '580'
kernel_module: open
module_options: {NVreg_RestrictProfilingToAdminUsers: 0, NVreg_CoherentGPUMemoryMode: driver}
source: nvidia
prefer: production
cuda: '>=12.8,<13'
cudnn: auto
nccl: none
torch: 2.7+cu128
tensorflow: none
mok: {key: /etc/site/mok.key, certificate: /etc/site/mok.der}
kernel_lock: hold
tuning: {numa_balancing: off, memlock: unlimited, sysctl: {vm.swappiness: 10}, iommu: leave}
repositories:
  nvidia-cuda: {url: 'https://packages.example/cuda', key: 'https://packages.example/key.asc', signed: 'yes'}
"""


@cache
def observations() -> tuple[bytes, ...]:
    """Of real machines, block YAML and JSON."""
    real = [cases.case(name)["observations"] for name in cases.OLDEST]
    return (*(yaml.safe_dump(seen).encode() for seen in real), *(json.dumps(seen).encode() for seen in real[:2]))


@cache
def specs() -> tuple[bytes, ...]:
    """stack.yml as it is shipped, and one that states much."""
    return ((ROOT / "stack.yml").read_bytes(), SPEC)


@cache
def profiles() -> tuple[bytes, ...]:
    """Simulated machines."""
    return tuple(path.read_bytes() for path in sorted((ROOT / "gpucheck" / "simulator" / "profiles").glob("*.yml")))


@cache
def keys() -> tuple[bytes, ...]:
    """OpenPGP, armored and binary."""
    armored = [path.read_bytes() for path in sorted((ROOT / "tests" / "playbooks" / "data").glob("*.asc"))]
    bodies = (key.partition(b"\n\n")[2].rpartition(b"\n=")[0] for key in armored)
    return (*armored, *(base64.b64decode(body) for body in bodies))
