"""Reports of simulated machines with faults, in every format: brief, and without a word of Python."""

import re
import shutil
from pathlib import Path

import click
import msgspec
import pytest
from lxml import html

from gpucheck import simulator
from gpucheck.host.live import LiveHost
from gpucheck.model import Verdict
from gpucheck.render import formats
from gpucheck.run import verification as run
from gpucheck.run.report import with_findings
from tests.shared import from_yaml, sampled

ROWS = from_yaml(Path(__file__).parents[1] / "data" / "fault_matrix.yml")
PROFILES = sorted(path.stem for path in (Path(simulator.__file__).parent / "profiles").glob("*.yml"))
QUICK = run.select(run.all_steps(), level="quick", only=(), skip=())
# One fault that takes everything away, one that leaves gaps, one about the host.
EVERYWHERE = ("driver-mismatch", "driver-not-loaded", "persistence-off")
CASES = [
    *((profile, fault) for profile in PROFILES for fault in ("", *EVERYWHERE)),
    *((row["profiles"][0], row["fault"]) for row in ROWS if row.get("steps", "quick") == "quick" and "ask" not in row),
]
PYTHON = re.compile(r"(?<![\w.'\"-])(None|True|False)(?![\w'\"-])")
# Checks that still print Python's words. To be emptied: a name may only be taken out.
KNOWN = frozenset(
    (
        "container-runtime",
        "cpu-governor",
        "driver",
        "fabric",
        "iommu",
        "memory-errors",
        "mig",
        "module-flavour",
        "next-boot",
    )
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def library(cache):
    """One NVML library for all machines: it reads whichever the environment names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("GPUCHECK_SIMULATOR", "")
        yield simulator.activate("p100-pcie-x2") / "lib"


@pytest.fixture
def verified(library, tmp_path, monkeypatch):
    """Run the quick checks on a machine with faults."""
    directory = tmp_path / "machine"

    def verified(name, *faults):
        profile = simulator.load(name)
        try:
            simulator.write_machine(profile, directory, driver=profile.driver.state(), faults=faults, software=True)
        except ValueError as error:
            pytest.skip(f"{name} cannot have {' '.join(faults)}: {error}")
        (directory / "lib").symlink_to(library)
        monkeypatch.setenv("GPUCHECK_SIMULATOR", str(directory))
        return run.verify(LiveHost(isolated=False, deadline_s=2.0, machine=directory), QUICK)

    yield verified
    shutil.rmtree(directory, ignore_errors=True)


def texts(report):
    """What a person reads of each format."""
    page = html.fromstring(formats.render(report, "html"))
    for code in page.xpath("//script | //style"):
        code.drop_tree()
    yield "html", page.text_content()
    yield "text", click.unstyle(formats.render(report, "text", verbose=True))
    yield from ((name, formats.render(report, name)) for name in ("nagios", "junit", "prometheus"))


@pytest.mark.parametrize(("name", "fault"), sampled(CASES, lambda number, _: number % 5 == 1))
def test_no_report_speaks_python(verified, name, fault):
    report = verified(name, *filter(None, [fault]))
    clean = with_findings(report, tuple(f for f in report.findings if f.check not in KNOWN), strict=False)
    found = {line.strip() for _, text in texts(clean) for line in text.splitlines() if PYTHON.search(line)}

    assert not found


def test_each_fault_of_16_gpus_is_one_block(verified):
    report = verified("dgx2-v100", "throttle-power-brake", "power-limit:watts=200", "clock-limit:mhz=900")
    text = click.unstyle(formats.render(report, "text"))
    headlines = [line.split(maxsplit=2) for line in text.splitlines() if line.startswith(("FAIL    ", "WARN    "))]

    assert [check for _, check, _ in headlines] == ["throttle", "clock-limit", "power-limit"]
    assert all(words.startswith("all 16 GPUs: ") for *_, words in headlines)
    assert len(text.splitlines()) < 50
    assert not re.search(r"nvidia-smi[^;]* -i ", text)


def test_one_gpu_of_16_keeps_its_command(verified):
    text = click.unstyle(formats.render(verified("dgx2-v100", "throttle-power-brake:gpu=3"), "text"))

    assert re.search(r"^FAIL    throttle  GPU 3 \([0-9a-f:.]+\): ", text, re.M)


WITHOUT = [(name, fault) for name in PROFILES for fault in ("driver-mismatch", "driver-not-loaded", "nouveau")]


@pytest.mark.parametrize(("name", "fault"), sampled(WITHOUT, lambda number, _: number % 8 == 3))
def test_without_a_driver_there_is_one_root_cause(verified, name, fault):
    report = verified(name, fault)
    text = click.unstyle(formats.render(report, "text"))
    troubles = [line for line in text.splitlines()[:-1] if line.startswith(("FAIL ", "WARN ", "UNKNOWN "))]

    assert troubles[0].split()[1] == "driver"
    assert [line for line in troubles if line.startswith("UNKNOWN") and "not run because of this" not in line] in (
        [],
        [troubles[0]],
    )
    assert formats.render(report, "junit").count("<error") <= 1


def test_a_lost_gpu_keeps_the_index_of_its_refused_handle_and_has_no_uuid(verified):
    found = {
        finding.subject: (finding.gpu_index, finding.gpu_uuid)
        for finding in verified("hgx-h100-x8", "gpu-lost:gpu=5").findings
        if finding.subject.startswith("gpu:") and finding.check in ("inventory", "persistence")
    }

    assert sorted(index for index, _ in found.values()) == list(range(8))
    assert [index for index, uuid in found.values() if uuid is None] == [5]


def test_the_names_are_in_the_json(verified):
    answer = msgspec.json.decode(formats.render(verified("hgx-h100-x8", "nvlink-down:gpu=2,link=3"), "json"))
    (finding,) = [f for f in answer["findings"] if f["verdict"] == Verdict.FAIL.value]

    assert (finding["gpu_index"], finding["gpu_uuid"]) == (2, answer["topology"]["gpus"][2]["uuid"])


def test_a_fix_of_several_lines_keeps_them_in_the_page(verified):
    """A line break is no control character of a host's: the page must not replace it."""
    report = verified("hgx-h100-x8", "nvlink-down:gpu=2,link=3")

    assert "\n" in next(f.fix for f in report.findings if f.verdict is Verdict.FAIL)
    assert "\ufffd" not in formats.render(report, "html")
