"""images/versions.yml and everything that follows from it: rows, tags, labels, locks, page."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from packaging.version import Version

from gpucheck.images.versions import (
    FILE,
    PAGE,
    VersionsError,
    image_manifest,
    labels,
    lock_path,
    purpose,
    read_versions,
    served,
    table,
    tag,
    version_text,
)
from release import image_versions
from release.image_versions import constraints, fill, fill_page, main, read_lock, requirements

ROOT = Path(__file__).parents[2]
VERSIONS = read_versions(ROOT)
NAMES = tuple(VERSIONS.variants)
BUILD = {"gpucheck": "0.1.0", "fingerprint": "0123"}


def with_row(name, spec=None, **filled):
    """The versions with these values of one row: of its specification, and filled in."""
    row = VERSIONS.variants[name]
    changed = replace(row, spec=replace(row.spec, **(spec or {})), filled=replace(row.filled, **filled))
    return replace(VERSIONS, variants={**VERSIONS.variants, name: changed})


def test_the_file_is_what_the_resolver_and_the_locks_say():
    """The one that fails when stack knowledge moves on: then run python -m release.image_versions --update."""
    assert main([]) == 0


def test_a_value_out_of_step_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(image_versions, "to_text", lambda _, old: old.replace("_mb: 1500", "_mb: 1"))

    assert main([]) == 2
    assert "+    size_budget_mb: 1\n" in capsys.readouterr().out


def test_a_gpu_that_no_table_knows_is_one_message():
    with pytest.raises(VersionsError, match="torch-cu126: GPU 'P1000x' is not known"):
        fill(with_row("torch-cu126", {"gpus": ("P1000x",)}), ROOT)


def test_a_spec_without_a_set_is_refused_with_what_to_try():
    with pytest.raises(VersionsError, match=r"no set exists: .* Try: "):
        fill(with_row("torch-cu126", {"version": "2.15.0"}), ROOT)


@pytest.mark.parametrize(
    ("gpu", "driver"),
    [
        ("Pascal", "580.178.04"),
        ("Volta", "535.54.03"),
        ("Turing", "550.54.14"),
        ("Ampere", "535.54.03"),
        ("Hopper", "550.54.14"),
        ("Blackwell", "580.65.06"),
    ],
)
def test_this_checkout_alone_builds_a_torch_image_for_every_generation(gpu, driver):
    """With wheels of PyPI: other indexes are out of reach for many."""
    found = [
        name
        for name, row in VERSIONS.variants.items()
        if row.framework == "torch" and row.filled.index == "pypi" and row.filled.driver_floor
        if gpu in served(row.filled.code) and Version(row.filled.driver_floor) <= Version(driver)
    ]

    assert found, f"no torch image for {gpu} on driver {driver}"


def test_the_cpu_torch_is_the_one_that_everything_else_is_tested_with():
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")]

    assert pinned == [f"torch=={VERSIONS.variants['torch-cpu'].filled.version}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_holds_the_row_and_what_gpucheck_needs(name):
    row = VERSIONS.variants[name]
    lock = read_lock(lock_path(ROOT, name))

    assert lock[row.framework].partition("+")[0] == row.filled.version
    assert {"click", "msgspec", "nvidia-ml-py", "packaging", "pyyaml"} <= lock.keys()
    for constraint in row.filled.constraints:
        library, _, version = constraint.partition("==")
        assert lock[library] == version


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_has_no_two_wheels_of_one_cuda_library(name):
    """The cu12 and cu13 wheels of cuDNN and NCCL write the same files."""
    lock = read_lock(lock_path(ROOT, name))

    for library in ("cudnn", "nccl"):
        assert sum(found.startswith(f"nvidia-{library}-") for found in lock) == bool(VERSIONS.variants[name].spec.gpus)


def test_a_lock_asks_for_the_build_and_leaves_the_framework_unconstrained():
    cpu, cuda = VERSIONS.variants["torch-cpu"], VERSIONS.variants["tensorflow-cuda"]

    assert requirements(cpu) == [f"torch=={cpu.filled.version}+cpu", "numpy"]
    assert requirements(cuda)[0] == f"tensorflow[and-cuda]=={cuda.filled.version}"
    # tensorflow's own wheel holds 700 MB of CUDA code that a CPU image never runs.
    assert requirements(VERSIONS.variants["tensorflow-cpu"])[0].startswith("tensorflow-cpu==")
    assert not any(line.startswith("torch==") for line in constraints(ROOT, cpu))


@pytest.mark.parametrize(
    ("text", "words"),
    [("variants: [", "not YAML"), ("schema: gpucheck.images/1\n", "base"), ("schema: other/9\n", "schema")],
)
def test_a_damaged_file_is_one_message(tmp_path, text, words):
    (tmp_path / "images").mkdir()
    (tmp_path / FILE).write_text(text)

    with pytest.raises(VersionsError, match=words):
        read_versions(tmp_path)


def test_a_tag_names_version_build_and_python_and_never_latest():
    tags = [tag(row, VERSIONS.base, stand_in=False) for row in VERSIONS.variants.values()]

    assert len(set(tags)) == len(tags)
    for row, name in zip(VERSIONS.variants.values(), tags, strict=True):
        assert row.filled.version in name
        assert name.endswith("-py312")
        assert "latest" not in name
        assert tag(row, VERSIONS.stand_in, stand_in=True).endswith("-py311-debian12")


@pytest.mark.parametrize("name", NAMES)
def test_labels_and_promise_say_what_the_row_says(name):
    row = VERSIONS.variants[name]
    found = labels(name, row, VERSIONS.base, stand_in=False, build=BUILD)

    assert found["gpucheck.images"] == name
    assert found["org.opencontainers.image.base.digest"].startswith("sha256:")
    assert found["org.opencontainers.image.version"] == f"{version_text(row)}+gpucheck.0.1.0"
    for key in ("cuda", "cudnn", "nccl", "driver_floor"):
        assert found.get(f"gpucheck.images.{key.replace('_', '-')}") == getattr(row.filled, key)
    assert image_manifest(name, row, VERSIONS.base, stand_in=False)["cuda"] == row.filled.cuda


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch-cpu", "for hosts without a GPU"),
        ("torch-cu126", "for Pascal, Volta, Turing, Ampere, Ada, Hopper with driver 525.60.13 or newer; torch.compile"),
        ("torch-cu132", "for Turing, Ampere, Ada, Hopper, Blackwell with driver 580.65.06 or newer"),
        ("tensorflow-cuda", "for Pascal, Volta, Turing, Ampere, Ada, Hopper with driver 525.60.13 or newer"),
    ],
)
def test_what_a_row_is_for_is_one_line(name, words):
    """torch.compile alone has a floor of its own."""
    row = VERSIONS.variants[name]
    said = purpose(row.framework, row.filled.code, row.filled.driver_floor)

    assert said.startswith(words)
    assert ("torch.compile" in said) is (name == "torch-cu126")


def test_the_pages_table_is_made_from_the_file():
    page = (ROOT / PAGE).read_text()

    assert fill_page(page, VERSIONS) == page
    assert table(VERSIONS).count("\n") == len(NAMES) + 2
