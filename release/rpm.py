"""The .rpm, which rpmbuild makes without root, on Debian too (apt install rpm)."""

import shutil
import tempfile
from pathlib import Path

from release.problem import run
from release.tree import AFTER_INSTALL, BEFORE_REMOVAL, HOME

MISSING = "no .rpm: rpmbuild is not on PATH. Install it: apt install rpm, or dnf install rpm-build"
# Off: what a distribution does to the files, and what depends on the time and the machine of the build.
DEFINES = {
    "__os_install_post": "%{nil}",
    "__arch_install_post": "%{nil}",
    "_build_id_links": "none",
    "_buildhost": "localhost",
    "_binary_payload": "w6.gzdio",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "source_date_epoch_from_changelog": "0",
}
SPEC = """Name: gpucheck-cluster
Version: {version}
Release: 1
Summary: Check that GPU hosts are ready for multi-GPU training
License: {licenses}
AutoReqProv: no
Requires: ({pythons})
Recommends: pciutils
Recommends: kmod

%description
gpucheck checks GPUs, links, driver and software stack of a host, measures copies
between GPUs and trains on two of them. Simulated machines show what it does without a GPU (gpucheck verify --simulate).

%install
cp -a {root}/. %{{buildroot}}/

%post
{after_install}
%preun
if [ "$1" = 0 ]; then
{before_removal}fi

%files
%defattr(-,root,root,-)
/usr/bin/gpucheck
/{home}
{texts}
"""


def available() -> bool:
    """Whether rpmbuild is there."""
    return shutil.which("rpmbuild") is not None


def rpm(root: Path, version: str, machine: str, pythons: list[str], licenses: str, folder: Path, date: int) -> Path:
    """Pack the tree. pythons: any of them is enough. licenses: of all wheels in it. Raises ReleaseError."""
    texts = sorted(f"/{path.relative_to(root)}" for path in (root / "usr/share").rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory(prefix="gpucheck-release-") as temporary:
        spec = Path(temporary, "gpucheck-cluster.spec")
        choice = " or ".join(f"/usr/bin/python{python}" for python in reversed(pythons))
        values = {"version": version, "root": root, "home": HOME, "texts": "\n".join(texts), "pythons": choice}
        values |= {"licenses": licenses, "after_install": AFTER_INSTALL, "before_removal": BEFORE_REMOVAL}
        spec.write_text(SPEC.format(**values))
        words: list[str | Path] = ["rpmbuild", "-bb", "--quiet", "--target", f"{machine}-linux"]
        for name, value in {**DEFINES, "_topdir": temporary, "_dbpath": f"{temporary}/db"}.items():
            words += ["--define", f"{name} {value}"]
        run([*words, spec], what="building the .rpm", environment={"SOURCE_DATE_EPOCH": str(date)}, cwd=temporary)
        (built,) = Path(temporary, "RPMS").rglob("*.rpm")
        return Path(shutil.copyfile(built, folder / built.name))
