"""A small site for the tests of bundles: two groups, their plans, and a bundle that serves them."""

from typing import Any

import msgspec

from gpucheck.bundle import contents
from gpucheck.bundle.contents import KEY, MANIFEST, SIGNATURE, BundledSystem, Manifest, OwnWheel, write_manifest
from gpucheck.bundle.folder import inventory
from gpucheck.bundle.signing import signer
from gpucheck.stack.lock import Lock, lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.spec import StackSpec
from tests.stack.hosts import host

WHEEL = OwnWheel(name="gpucheck_cluster-0.1.0-py3-none-any.whl", digest="ab" * 32, python_minimum="3.10")


def site_lock(**spec: Any) -> Lock:
    """The lock of an apt and a dnf host."""
    hosts = [host("ubuntu-22.04", "p100-pcie-x2", "lab-apt"), host("rocky-9", "h100-sxm5-x8", "lab-dnf")]
    return lock(StackSpec(**spec), hosts)


def host_plan(name: str, **spec: Any) -> Plan:
    """The plan of one of them."""
    found = plan(site_lock(**spec), host=name)
    assert isinstance(found, Plan)
    return found


def versions_of(*plans: Plan) -> dict[str, tuple[str, ...]]:
    """What was collected if a source offered everything: the planned packages, their headers, and some dependency."""
    found = {p["name"]: (p["version"] or "1-1",) for one in plans for p in contents.planned(one)}
    for one in plans:
        for header in one.headers:
            name, _, version = header.partition("-devel-")
            found[f"{name}-devel" if version else header] = (version.rpartition(".")[0] or "1",)
    return {**found, "libdependency1": ("2-1",)}


def manifest(*names: str, **changes: object) -> Manifest:
    """The manifest of a bundle for the groups of these hosts."""
    plans = [host_plan(name) for name in names]
    systems = {
        contents.system_of(one): BundledSystem(
            package_manager=one.package_manager,
            packages=f"{contents.system_of(one)}/packages",
            wheels=f"{contents.system_of(one)}/wheels",
            python="3.11",
            versions=versions_of(one),
            not_offered=(),
        )
        for one in plans
    }
    groups = {one.group: contents.bundled_group(one, systems[contents.system_of(one)].versions) for one in plans}
    made = Manifest(
        made="2026-11-21T00:00:00+00:00",
        key="AB" * 20,
        simulated=True,
        wheel=WHEEL,
        groups=groups,
        systems=systems,
        files={},
    )
    return msgspec.structs.replace(made, **changes)


def signed_folder(folder, files, **changes):
    """A bundle with these files (path -> bytes), signed with a key of its own; returns the key's fingerprint."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    with signer("") as signing:
        signing.public(folder / KEY)
        made = manifest("lab-apt", key=signing.fingerprint, files=inventory(folder), **changes)
        (folder / MANIFEST).write_bytes(write_manifest(made))
        signing.detached(folder / MANIFEST, folder / SIGNATURE)
    return signing.fingerprint
