"""Packages that came along with the driver or the toolkit: held like the planned ones, and let go of with them."""

import pytest

from tests.playbooks.modules import shared

along = shared("host_plan")
record = shared("record")

DRIVER = "3:580.178.04-1.el9"
PACKAGES = {
    "nvidia-driver-cuda": DRIVER,
    "nvidia-driver-libs": DRIVER,
    "libnvidia-cfg": DRIVER,
    "libnvidia-container1": "1.18.1-1",
    "cuda-toolkit-13-0": "13.0.2-1",
    "libcublas-13-0": "13.1.0.3-1",
    "cuda-nvcc-13-0": "13.0.88-1",
    "cuda-toolkit-13-0-config-common": "13.0.96-1",
    "cuda-toolkit-config-common": "13.0.96-1",
    "libcublas-12-9": "12.9.1.4-1",
    "site-app-13-0": "1-1",
    "openssl": "3.0-1",
}
CUDA = ["cuda-nvcc-13-0", "cuda-toolkit-13-0-config-common", "cuda-toolkit-config-common", "libcublas-13-0"]
LOCKED = ["libnvidia-cfg-3:580.178.04-1.el9.*", "nvidia-driver-libs-3:580.178.04-1.el9.*"]


def plan(manager, version=DRIVER, cuda="13.0.2-1"):
    def part(name, version):
        return {"packages": [{"name": name, "version": version, "spec": name}], "holds": [name]}

    parts = {"driver": part("nvidia-driver-cuda", version), "cuda": part("cuda-toolkit-13-0", cuda)}
    expected = {"driver_version": version.split(":")[-1].split("-")[0]}
    return {"package_manager": manager, "components": parts, "expected": expected}


THEIRS = ["openssl-3.0-1.*", "libnvidia-container1-1.18.1-1.*"]
CAME = [f"{name}-{PACKAGES[name]}.*" for name in CUDA]
OLD = "libnvidia-cfg-3:570.195.03-1.el9.*"
NEWER = {"version": "3:590.48.01-1.el9", "cuda": "13.0.3-1"}


@pytest.mark.parametrize(
    ("manager", "component", "planned", "held", "missing", "stale"),
    [
        ("apt", "cuda", {}, CUDA[:2], CUDA[2:], []),
        # A pin keeps them.
        ("apt", "driver", {}, [], [], []),
        ("apt", "cuda", {}, CUDA, [], []),
        # apt moves no held package that is only a dependency.
        ("apt", "cuda", NEWER, CUDA, [], CUDA),
        # dnf locks at the version that is installed.
        ("dnf", "driver", {}, THEIRS, LOCKED, []),
        ("dnf", "driver", {}, LOCKED, [], []),
        # Locks would keep the dependencies where they are, and the transaction would find no solution.
        ("dnf", "driver", NEWER, [*THEIRS, *LOCKED], [], LOCKED),
        ("dnf", "cuda", NEWER, [*THEIRS, *CAME], [], CAME),
        # After the change.
        ("dnf", "driver", {}, [*LOCKED, OLD], [], [OLD]),
    ],
)
def test_holds_follow_what_came_along(manager, component, planned, held, missing, stale):
    holds, locks = (held, []) if manager == "apt" else ([], held)
    words = [f"2 packages installed with {component} are not held at their version"] if missing else []

    assert along.along_holds(plan(manager, **planned), component, PACKAGES, holds, locks) == (words, missing, stale)


def test_holds_go_with_the_component(tmp_path, monkeypatch):
    """And none of them while it is planned: a transaction of other components would let go of them."""
    monkeypatch.setattr(record, "added", lambda packages, _: set(packages))
    monkeypatch.setattr(record, "INSTALLED", str(tmp_path / "installed.json"))
    held = [*CUDA, "cuda-toolkit-13-0", "openssl"]
    (tmp_path / "installed.json").write_text('{"holds": ["libnvidia-cfg", "nvidia-driver-libs"]}')
    nothing = {"components": {}, "expected": {"driver_version": None}}

    assert record.unplanned(plan("apt"), PACKAGES, held)["held"] == ["openssl"]
    assert record.unplanned(nothing, PACKAGES, held)["held"] == sorted(held)
    assert record.left_locks(plan("dnf"), LOCKED, shared("host").lock_name, PACKAGES) == []
    assert record.left_locks(nothing, LOCKED, shared("host").lock_name, PACKAGES) == LOCKED
