"""The .deb, which dpkg-deb makes without root."""

import shutil
from pathlib import Path

from release.problem import run
from release.tree import AFTER_INSTALL, BEFORE_REMOVAL, settle

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MISSING = "no .deb: dpkg-deb is not on PATH. Install it: apt install dpkg, or dnf install dpkg"
CONTROL = """Package: gpucheck-cluster
Version: {version}
Architecture: {architecture}
Maintainer: the gpucheck authors <noreply@localhost>
Installed-Size: {size_kib}
Depends: python3 (>= 3.10), libc6 (>= 2.28)
Recommends: pciutils, kmod
Section: admin
Priority: optional
Description: check that GPU hosts are ready for multi-GPU training
 gpucheck checks GPUs, links, driver and software stack of a host, measures
 copies between GPUs and trains on two of them. Simulated machines show what it
 does without a GPU (gpucheck verify --simulate).
"""


def available() -> bool:
    """Whether dpkg-deb is there."""
    return shutil.which("dpkg-deb") is not None


def deb(root: Path, version: str, machine: str, folder: Path, date: int) -> None:
    """Pack the tree; its control files are removed again. Raises ReleaseError."""
    architecture, control = ARCHITECTURES[machine], root / "DEBIAN"
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    control.mkdir()
    values = {"version": version, "architecture": architecture, "size_kib": size // 1024}
    (control / "control").write_text(CONTROL.format(**values))
    for name, body in {"postinst": AFTER_INSTALL, "prerm": BEFORE_REMOVAL}.items():
        (control / name).write_text(f"#!/bin/sh\nset -e\n{body}")
    settle(root, date)  # and the directory itself, whose date the new one in it changed
    for name in ("postinst", "prerm"):
        (control / name).chmod(0o755)
    words: list[str | Path] = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", root, folder]
    run(words, what="building the .deb", environment={"SOURCE_DATE_EPOCH": str(date)})
    shutil.rmtree(control)
