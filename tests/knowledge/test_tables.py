"""The tables hold together: nothing dangles, every range has something in it, every source is known."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpucheck import knowledge
from gpucheck.knowledge import find_gpu, generation_of, gpus, links, nvlink_rate, tables
from gpucheck.knowledge._load import FOLDER
from gpucheck.knowledge.messages import NEVER, Patterns, kinds, needed_text, needed_texts, rows
from gpucheck.knowledge.packages import packages
from gpucheck.stack.versions import cc, major, parse

GPUS = gpus()
NEWEST_CUDA = max(parse(toolkit.version) for toolkit in tables.cuda().toolkits)
BRANCHES = {branch.branch: branch for branch in tables.drivers().branches}
FILES = sorted(FOLDER.glob("*.yml"))
# These tables describe their sources in words.
WORDS = {"actions.yml", "by_design.yml", "causes.yml", "compute.yml", "links.yml", "normal.yml", "suspects.yml"}


def source_ids(node: Any) -> set[str]:
    """Every id in a ``source`` list anywhere below."""
    if isinstance(node, list):
        return {found for item in node for found in source_ids(item)}
    if not isinstance(node, dict):
        return set()
    own = {str(item) for item in node["source"]} if isinstance(node.get("source"), list) else set()
    return own | {found for value in node.values() for found in source_ids(value)}


@pytest.mark.parametrize("path", [f for f in FILES if f.name not in WORDS | {"sources.yml"}], ids=lambda f: f.name)
def test_every_table_names_known_sources(path: Path):
    ids = source_ids(yaml.safe_load(path.read_text(encoding="utf-8")))

    assert ids
    assert ids <= set(tables.sources())


@pytest.mark.parametrize("path", FILES, ids=lambda f: f.name)
def test_every_table_is_dated(path: Path):
    text = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert text["as_of"].startswith("20")
    assert text["schema"].startswith("gpucheck.knowledge.")


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.name)
def test_a_gpu_row_is_complete_and_consistent(gpu):
    assert gpu.first_driver.branch in BRANCHES
    if gpu.last_driver_branch:
        assert int(gpu.first_driver.branch) <= int(gpu.last_driver_branch)
        assert gpu.architecture in BRANCHES[gpu.last_driver_branch].architectures
    assert parse(gpu.min_cuda_native) <= NEWEST_CUDA
    if gpu.max_cuda:
        assert parse(gpu.min_cuda_native) <= parse(gpu.max_cuda)
    for pci_id in gpu.pci_ids:
        generation = generation_of(pci_id)
        assert generation is not None
        assert gpu.grace or generation.kernel_module == gpu.kernel_module


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.name)
def test_a_gpu_is_found_by_every_name_and_id_it_has(gpu):
    assert all(find_gpu(text) == gpu for text in (gpu.name, *gpu.aliases, *gpu.pci_ids))


@pytest.mark.parametrize("gpu", [g for g in GPUS if g.nvlink], ids=lambda g: g.name)
def test_link_rates_of_both_tables_agree(gpu):
    """gpus.yml and links.yml state the same NVLink, so that no answer depends on which was asked."""
    for rate in (nvlink_rate(gpu.compute_capability), nvlink_rate(gpu.name)):
        assert (rate.generation, rate.gb_s) == (gpu.nvlink.generation, gpu.nvlink.gb_s_per_link)
    assert all(0.5 < knowledge.nvlink_factor(gpu.nvlink.generation, engine) <= 1 for engine in ("ce", "sm"))


@pytest.mark.parametrize("branch", BRANCHES.values(), ids=lambda b: b.branch)
def test_a_branch_row_is_consistent(branch):
    """Versions belong to their branch and are in order; a branch without versions is never called supported."""
    for version in filter(None, (branch.first, branch.last)):
        assert major(version) == int(branch.branch)
    if branch.first and branch.last:
        assert parse(branch.first) <= parse(branch.last)
    assert branch.last or branch.state == "unknown"
    assert branch.kernel_modules


@pytest.mark.parametrize("toolkit", tables.cuda().toolkits, ids=lambda t: t.version)
def test_a_toolkit_row_is_consistent(toolkit):
    """The full floor lies at or above the floor of the major, and the range of GPUs is not empty."""
    assert cc(toolkit.min_cc) <= cc(toolkit.max_cc)
    assert toolkit.driver_minor == tables.drivers().minor_compat_floor[str(major(toolkit.version))]
    if toolkit.driver_full and toolkit.driver_full != "570.26":
        assert parse(toolkit.driver_full) >= parse(toolkit.driver_minor)
    if toolkit.driver_full and toolkit.driver_branch:
        assert major(toolkit.driver_full) == int(toolkit.driver_branch)


@pytest.mark.parametrize("release", tables.torch().releases, ids=lambda r: r.version)
def test_torch_build_has_architectures_or_is_unconfirmed(release):
    for build in release.builds:
        assert build.archs or "unconfirmed" in build.basis
        assert build.build == f"cu{''.join(build.cuda.split('.')[:2])}"
        floors = tables.drivers().minor_compat_floor
        assert build.min_driver == floors[str(major(build.cuda))]
    assert all(parse(python.removesuffix("t")) >= parse("3.7") for python in release.pythons)


def test_tables_are_in_order_of_version():
    """The resolver reads them from the end: newest last."""
    for versions in (
        [r.version for r in tables.torch().releases],
        [r.version for r in tables.tensorflow().releases],
        [t.version for t in tables.cuda().toolkits],
        [r.version for r in tables.cudnn().releases],
    ):
        assert versions == sorted(versions, key=parse)
    assert list(BRANCHES) == sorted(BRANCHES, key=int)


def test_every_system_nccl_build_has_its_architecture_list():
    """A package whose machine code is not known must not be offered."""
    known = {(build.version, build.cuda_major) for build in tables.nccl().builds}

    assert {(pair.version, major(pair.cuda)) for pair in packages().nccl.builds} <= known


def test_every_supported_system_has_a_repository_with_a_key():
    """A system is either planned, or without a repository and then refused."""
    keys = packages().repositories.keys

    for system in tables.operating_systems().systems:
        assert system.repository is None or system.repository in keys


def test_driver_package_rows_name_both_flavours_for_every_system():
    for system in {s.os_id for s in tables.operating_systems().systems}:
        flavours = {
            row.flavour
            for row in packages().drivers
            if system in row.os and int(row.branches.first) <= 580 <= int(row.branches.last)
        }
        assert flavours == {"open", "proprietary"}


@pytest.mark.parametrize("device_id", ["", "a b", "0x", "15f8 ", "zz", "1" * 5000])
def test_what_is_no_device_id_has_no_generation(device_id):
    assert generation_of(device_id) is None


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (r"\bsystem not yet initialized", "system not yet initialized"),
        (r"\bGPU is lost\b", "GPU is lost"),
        (r"abc?def", "def"),
        (r"ab*cd{2}ef+gh", "ef"),
        (r"a|b", ""),
        (r"(?:long text|x) is\.that", " is.that"),
        (r"[abc]+ text [^\]x]end", " text "),
        (r"\bst=(?P<code>\d{1,3}) vendor", " vendor"),
        (r"\(NVLS\) Multicast", "(NVLS) Multicast"),
        ("", ""),
    ],
)
def test_the_longest_text_outside_of_groups(pattern, needed):
    assert needed_text(pattern) == needed


def test_each_alternative_has_a_text_of_its_own():
    assert needed_texts(r"GPU_IS_LOST|GPU is (?:lost|gone)") == ("GPU_IS_LOST", "GPU is ")
    assert needed_texts(r"lost|\d{3}") == ()


def test_patterns_are_tried_where_a_line_has_their_text_in_any_case_if_they_ignore_it():
    patterns = Patterns([r"GPU \d has fallen", r"(?i)timed out"])

    assert patterns.search("NVRM: GPU 3 has fallen off")
    assert not patterns.match("NVRM: GPU 3 has fallen off")
    assert patterns.match("TIMED OUT")
    assert not patterns.search("GPU has fallen")


def test_nearly_every_pattern_of_a_message_names_letters():
    """A pattern without them is searched in every line."""
    patterns = [(row.key, p) for kind in kinds() for row in rows(kind) for p in row.patterns if p != NEVER]

    without = [key for key, pattern in patterns if not needed_texts(pattern.removeprefix("(?i)"))]

    assert len(without) <= 4, without


def test_a_pcie_rate_is_lanes_times_signalling_rate_times_coding():
    """The table agrees with arithmetic to its two digits."""
    per_lane = {
        1: 2.5 * 8 / 10,
        2: 5 * 8 / 10,
        3: 8 * 128 / 130,
        4: 16 * 128 / 130,
        5: 32 * 128 / 130,
        6: 64 * 242 / 256,
    }
    for generation, widths in links._links().pcie.gb_s.items():
        for width, rate in widths.items():
            assert rate == pytest.approx(per_lane[generation] / 8 * width, rel=0.02)


@pytest.mark.parametrize(("generation", "width"), [(7, 16), (4, 3), (0, 1)])
def test_a_link_that_does_not_exist_has_no_rate(generation, width):
    with pytest.raises(LookupError, match="PCIe link"):
        knowledge.pcie_gb_s(generation, width)


@pytest.mark.parametrize("gpu", ["8.9", "12.0", "RTX 4090", "Voodoo 2"])
def test_a_gpu_without_nvlink_has_no_rate(gpu):
    with pytest.raises(LookupError):
        knowledge.nvlink_rate(gpu)


def test_a_generation_of_nvlink_that_does_not_exist_has_no_factor():
    with pytest.raises(LookupError):
        knowledge.nvlink_factor(9)


def test_every_kind_of_copy_has_a_possible_median_and_a_spread():
    rates = knowledge.healthy_rates()
    kinds = [
        getattr(rates, name) for name in rates.__struct_fields__ if name not in ("source", "direct_intel", "direct")
    ]
    for median, spread in (*kinds, *rates.direct.values()):
        assert 0.3 < median <= 1
        assert 0 < spread < 0.5
