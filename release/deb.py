"""The .deb, written here: it takes no Debian, no root and no program."""

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

from release.archives import ar, tar_gz
from release.tree import AFTER_INSTALL, BEFORE_REMOVAL, data, size_kib

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def deb(root: Path, version: str, machine: str, folder: Path, date: int) -> Path:
    """Pack the tree: deb(5)."""
    architecture = ARCHITECTURES[machine]
    control = f"""Package: gpucheck-cluster
Version: {version}
Architecture: {architecture}
Maintainer: the gpucheck authors <noreply@localhost>
Installed-Size: {size_kib(root)}
Depends: python3 (>= 3.10), libc6 (>= 2.28)
Recommends: pciutils, kmod
Section: admin
Priority: optional
Description: check that GPU hosts are ready for multi-GPU training
 gpucheck checks GPUs, links, driver and software stack of a host, measures
 copies between GPUs and trains on two of them. Simulated machines show what it
 does without a GPU (gpucheck verify --simulate).
"""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    sums = "".join(
        f"{hashlib.md5(f.read_bytes(), usedforsecurity=False).hexdigest()}  {f.relative_to(root)}\n" for f in files
    )
    scripts = {"postinst": AFTER_INSTALL, "prerm": BEFORE_REMOVAL}
    entries: list[tuple[str, Path | bytes]] = [("./control", control.encode()), ("./md5sums", sums.encode())]
    with TemporaryDirectory(prefix="gpucheck-release-") as temporary:
        for name, body in scripts.items():
            script = Path(temporary, name)
            script.write_text(f"#!/bin/sh\nset -e\n{body}")
            script.chmod(0o755)
            entries.append((f"./{name}", script))
        packed = tar_gz(entries, date)
    members = [("debian-binary", b"2.0\n"), ("control.tar.gz", packed), ("data.tar.gz", data(root, date))]
    made = folder / f"gpucheck-cluster_{version}_{architecture}.deb"
    made.write_bytes(ar(members, date))
    return made
