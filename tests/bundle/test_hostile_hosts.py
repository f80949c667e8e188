"""A bundle is made of what hosts bring, and a hostile host brings anything."""

import json
import shutil

import pytest

from gpucheck.bundle.contents import BundleError
from gpucheck.bundle.publisher import read_collected
from tests.bundle.collecting import GROUP, make

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-ftparchive", "dpkg-deb"))), reason="apt-ftparchive and dpkg-deb are not installed"
)


HOSTILE_NAMES = [
    "../../../evil",
    "/etc/cron.d/x",
    "a/b.deb",
    "..",
    "",
    "a\0.deb",
    "a\n.deb",
    "-x.deb",
    "x" * 300 + ".deb",
]


CHANGES = [
    *({"packages": {"file": name}} for name in HOSTILE_NAMES),
    *({"packages": {"name": name}} for name in ("a b", "x\n", "../x")),
    {"packages": {"version": "1\x1b[2J"}},
    {"packages": {"sha256": "../x"}},
    {"packages": {"bytes": -1}},
    {"packages": {"bytes": 1 << 60}},
    {"modules": ["../../../../../../evil/PWNED-fetch"]},
    {"modules": ["modules/../../x-modules.yaml"]},
    {"metadata": ["/etc/passwd"]},
    {"not_offered": ["x\n99 packages verified"]},
    *({"python": {"version": "3.11", "glibc": glibc, "machine": "x86_64"}} for glibc in ("2.999", "1.2", "musl")),
    {"python": {"version": "--index-url", "glibc": "2.36", "machine": "x86_64"}},
    {"python": {"version": "3.11", "glibc": "2.36", "machine": "../x"}},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: repr(change)[:40])
def test_value_of_a_hostile_host_is_rejected(site, tmp_path, change):
    """As make reads it first of all."""
    answer = json.loads((site / f"collected/{GROUP}.json").read_text())
    first, *others = answer["packages"]
    row = {"packages": [{**first, **change["packages"]}, *others]} if "packages" in change else change
    path = tmp_path / f"{GROUP}.json"
    path.write_text(json.dumps({**answer, **row}))

    with pytest.raises(BundleError, match="not a response of bundle_packages"):
        read_collected(path)


def test_a_response_for_another_group_and_a_link_in_place_of_a_package_are_refused(made):
    path = made / f"collected/{GROUP}.json"
    package = next((made / f"collected/{GROUP}/packages").glob("libnccl2_*"))
    package.rename(made / "elsewhere.deb")
    package.symlink_to(made / "elsewhere.deb")
    with pytest.raises(BundleError, match="not a regular file"):
        make(made)

    path.rename(path.with_name("other.json"))
    with pytest.raises(BundleError, match="contains group"):
        make(made)
