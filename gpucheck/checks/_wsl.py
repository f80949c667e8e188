"""Windows Subsystem for Linux: what it does not have by design, by check (knowledge/codes/session.yml).

The GPU belongs to Windows. Programs reach it through /dev/dxg; in Linux there is no kernel module, no device file of
NVIDIA and no PCI device, and NVML lists no processes (NVIDIA CUDA on WSL user guide, known limitations).
"""

from gpucheck.knowledge.codes import Subject, reported
from gpucheck.model import Finding, Verdict

WSL = "wsl"


def absent(check: str, virtual: str | None) -> Finding | None:
    """Return the SKIP of a check whose subject does not exist in this kind of virtual machine."""
    skips = reported(check).get(Verdict.SKIP, ()) if virtual == WSL else ()
    return next((Subject(check=check).skips(code) for code in skips if code.startswith("session.wsl-")), None)
