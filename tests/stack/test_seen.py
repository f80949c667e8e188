"""A stated version that the tables lack: taken as unconfirmed, as a record shows it or exactly as it is stated."""

import pytest

from gpucheck.knowledge import _load
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.releases import use_site_tables
from gpucheck.stack.lock import still_valid, target_of_group
from gpucheck.stack.spec import StackSpec
from tests.stack.asked import answer, planned, refusal, reread
from tests.stack.cli_words import run
from tests.stack.hosts import host

SEEN = """
folders:
  ubuntu2404:
    x86_64:
      libnccl2: ["2.30.4-1+cuda13.2", "2.99.1-1+cuda12.9"]
      libnccl-dev: ["2.30.4-1+cuda13.2"]
      cuda-toolkit-13-0: ["13.0.9-1"]
      libcudnn9-cuda-13: ["9.27.9.1-1"]
      datacenter-gpu-manager-4-core: ["1:4.8.0-1"]
  libnvidia-container:
    x86_64:
      nvidia-container-toolkit: ["1.21.0-1"]
"""


@pytest.fixture
def site(tmp_path):
    """Use these files as the site's tables."""

    def use(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.yml").write_text(text)
        return use_site_tables(tmp_path)

    yield use
    _load.use(tmp_path, {})


CASES = [
    ("nccl", "2.30.4", "2.30.4+cuda13.2"),
    ("nccl", "2.30.4+cuda13.2", "2.30.4+cuda13.2"),
    ("cuda", "13.0.9", "13.0.9"),
    ("cudnn", "9.27.9", "9.27.9.1"),
    ("dcgm", "4.8.0", "4.8.0"),
    ("container_toolkit", "1.21.0", "1.21.0"),
]


@pytest.mark.parametrize(("part", "stated", "taken"), CASES)
def test_stated_version_in_a_record_is_taken_and_unconfirmed(site, part, stated, taken):
    site(recorded=SEEN)
    found = answer(["T4"], "ubuntu-24.04", f"{part}={stated}")

    assert getattr(found, part) == taken
    (reason,) = [row for row in found.reasons if row.component == part and "missing from the tables" in row.because]
    assert not reason.confirmed
    assert "a record shows it" in reason.because
    # Nothing takes it that does not state it.
    assert getattr(answer(["T4"], "ubuntu-24.04"), part, None) != taken

    made = reread(StackSpec(**{part: stated}), host("ubuntu-24.04", "t4-x1"))
    (group,) = made.groups.values()
    assert still_valid(target_of_group(group), group.stack, made.spec) == ()
    packages = planned(StackSpec(**{part: stated}), "ubuntu-24.04").components[part]["packages"]
    assert any(taken.partition("+")[0] in row["version"] for row in packages)


@pytest.mark.parametrize(
    ("wanted", "spec"),
    [
        (("driver=620.80.02",), "libnvidia-compute=620.80.02-1ubuntu1"),
        (("driver=580.101.01",), "libnvidia-compute-580=580.101.01-0ubuntu1"),
        # A branch after the newest, with its names.
        (("driver=625.44.01",), "libnvidia-compute=625.44.01-1ubuntu1"),
        (("cuda=13.5.1",), "cuda-toolkit-13-5=13.5.1-1"),
        (("cuda=13.6.0",), "cuda-toolkit-13-6=13.6.0-1"),
        (("cudnn=9.29.0.30",), "libcudnn9-cuda-13=9.29.0.30-1"),
        (("nccl=2.33.1",), "libnccl2=2.33.1-1+cuda13.5"),
        (("nccl=2.33.1+cuda13.0",), "libnccl2=2.33.1-1+cuda13.0"),
        # Its known build is for CUDA 13; NVIDIA builds each release for both majors.
        (("nccl=2.32.3", "cuda=12.9"), "libnccl2=2.32.3-1+cuda12.9"),
        # A record of one of its two packages alone.
        (("nccl=2.99.1", "cuda=12.9"), "libnccl-dev=2.99.1-1+cuda12.9"),
        (("container_toolkit=1.22.3",), "nvidia-container-toolkit=1.22.3-1"),
        (("dcgm=4.9.1",), "datacenter-gpu-manager-4-core=1:4.9.1-1"),
    ],
)
def test_exactly_stated_version_without_a_record_is_planned_as_unconfirmed(site, wanted, spec):
    """With the revision of the component's other versions: the repository check proves or rejects it."""
    site(recorded=SEEN)
    parts = dict(one.split("=") for one in wanted)
    found = planned(StackSpec(**parts), "ubuntu-24.04")

    assert spec in {row["spec"] for part in found.components.values() for row in part["packages"]}
    assert spec in {row.spec for row in found.unconfirmed}
    reasons = [
        row for row in found.stack.reasons if "tables" in row.because and row.component == wanted[0].split("=")[0]
    ]
    assert reasons
    assert not any(row.confirmed for row in reasons)


@pytest.mark.parametrize(
    ("wanted", "rule"),
    [
        # Between known minor releases: it was never released.
        ("cuda=12.7.0", "R2"),
        # A major that no driver is known for.
        ("cuda=14.0.0", "R2"),
        # Other packages than those of DCGM 4.
        ("dcgm=3.3.5", "R23"),
        # A start of a version names no package.
        ("cudnn=9.29.0", "R7"),
        ("nccl=2.33", "R8"),
        ("container_toolkit=1.22", "R18"),
        # A branch between known ones.
        ("driver=600.10.01", "R18"),
        # The builds of this one are known, and none is for CUDA 12.
        ("nccl=2.32.3+cuda12.9", "R8"),
    ],
)
def test_stated_version_that_contradicts_a_rule_is_refused(wanted, rule):
    found = refusal(["T4"], "ubuntu-24.04", wanted)

    assert found.rule == rule
    assert found.change


def test_a_release_of_nccl_whose_other_build_is_known_is_the_one_that_a_record_shows():
    found = answer(["T4"], "ubuntu-24.04", "nccl=2.28.9", "cuda=12.9")

    assert found.nccl == "2.28.9+cuda12.9"
    assert answer(["T4"], "ubuntu-24.04", "nccl=2.28.9", "cuda=13.0").nccl == "2.28.9+cuda13.0"


@pytest.mark.parametrize("wanted", ["cudnn=9.29.0.30", "nccl=2.33.1+cuda13.5", "cuda=13.6.0"])
def test_unknown_version_keeps_the_limits_of_the_nearest_known_one(wanted):
    """Pascal has no code in anything of CUDA 13, nor in cuDNN since 9.11."""
    assert refusal(["P100"], "ubuntu-24.04", wanted).rule in ("R7", "R8", "R9")


@pytest.mark.parametrize("wanted", ["nccl>=2.99", "nccl=3", "dcgm>4.7"])
def test_range_takes_nothing_from_records(site, wanted):
    site(recorded=SEEN)

    assert "is known" in refusal(["T4"], "ubuntu-24.04", wanted).because


def test_site_rows_extend_and_replace_and_every_output_names_them(site, tmp_path):
    before = packages().container_toolkit.versions
    names = site(packages="container_toolkit: {versions: ['1.18.9']}\nnccl: {revision: '2'}\n")

    assert names == ("packages.yml",)
    assert packages().container_toolkit.versions == (*before, "1.18.9")
    assert packages().nccl.revision == "2"
    found = answer(["T4"], "ubuntu-24.04")
    assert found.container_toolkit == "1.18.9"
    assert [row.because for row in found.reasons if row.component == "tables"] == [
        f"tables with your own rows: {tmp_path / 'packages.yml'}"
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nothing.yml", "a: 1\n", "nothing.yml: no such table. Known: actions.yml, archives.yml"),
        ("packages.yml", "- a\n", "packages.yml: must be 'key: value' lines"),
        ("packages.yml", "a: b: c\n", "packages.yml: not YAML"),
        ("packages.yml", "nccl: {apt: 3}\n", "packages.yml: with its rows the table is not valid"),
    ],
)
def test_unusable_site_file_is_named(site, tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    done = run("--knowledge-dir", str(tmp_path), "resolve", "--gpu", "T4", "--os", "ubuntu-24.04")

    assert done.exit_code in (3, 64)
    assert message in done.stderr
