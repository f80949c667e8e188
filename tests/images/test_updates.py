"""Updates of the base's packages: installed by --fresh, kept by later builds."""

from gpucheck.images.build import BuildOptions, build
from tests.images.fake_builds import fake_engine


def test_a_fresh_build_installs_updates_and_later_ones_keep_them(checkout, monkeypatch):
    engine = fake_engine()
    build(engine, checkout, "torch-cpu", BuildOptions())
    assert "UPDATES" not in engine.calls[-1]["buildargs"]

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1764460800")
    assert build(engine, checkout, "torch-cpu", BuildOptions(fresh=True)).built
    fresh = engine.calls[-1]
    assert fresh["buildargs"]["UPDATES"] == fresh["labels"]["gpucheck.images.updates"] == "20251130000000"

    # Another gpucheck, without --fresh: not the older packages that the builder's cache holds for no state at all.
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    (checkout / ".cache/images/gpucheck_cluster-0.1.0-py3-none-any.whl").write_bytes(b"changed")
    build(engine, checkout, "torch-cpu", BuildOptions())
    assert engine.calls[-1]["buildargs"]["UPDATES"] == "20251130000000"
