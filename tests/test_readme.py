"""The README is run: every gpucheck line in it, and every make target that it names."""

import re
import shlex
from pathlib import Path

import pytest

from gpucheck.cli import main
from gpucheck.run.steps import train
from tests.run.test_collectives import ended
from tests.shared import sampled
from tests.train.outcomes import ON_CPU

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("gpucheck ")]
# The exit status that each line is meant to show; the others pass.
STATUS = {"nvlink-down": 2, "pcie-width": 2}


@pytest.mark.parametrize("ranks", sampled(["known", "real"], (0,)))
@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_does_what_it_is_shown_for(line, ranks, capsys, tmp_path, monkeypatch):
    """Ranks with torch come to a known end, as their own tests start them; in make test-more they run."""
    if ranks == "known":
        monkeypatch.setattr(train, "run_smoke", lambda options: ON_CPU)
        monkeypatch.setattr("gpucheck.measure.collectives.run.launch", lambda *_, **__: ended(2))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line)[1:])

    out = capsys.readouterr().out
    assert (stop.value.code or 0) == next((status for word, status in STATUS.items() if word in line), 0)
    written = tmp_path / line.partition(" -o ")[2]
    assert (written.read_text(encoding="utf-8") if " -o " in line else out).strip()


def test_the_finding_shown_is_the_finding_printed(capsys):
    """The example is a real one, to the letter."""
    shown = next(block for block in BLOCKS if block.startswith("FAIL "))

    with pytest.raises(SystemExit):
        main(shlex.split("verify --simulate hgx-h100-x8 --level quick --fault nvlink-down:gpu=2,link=3"))

    assert shown in re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)


def test_set_up_commands_come_first():
    """Whoever copies the first block gets the lab and the tests."""
    assert [line.split("#")[0].strip() for line in BLOCKS[0].splitlines()] == ["make provision", "make test"]


def test_pictures_are_small_palette_pngs():
    """Color type 3 of the PNG header is a palette."""
    pictures = sorted((ROOT / "docs/images").glob("*.png"))

    assert {str(picture.relative_to(ROOT)) for picture in pictures} == set(re.findall(r'<img src="([^"]+)"', README))
    assert all("SIMULATED" in alt for alt in re.findall(r'<img [^>]*alt="([^"]+)"', README))
    for picture in pictures:
        data = picture.read_bytes()
        assert data.startswith(b"\x89PNG\r\n")
        assert data[25] == 3
        assert len(data) < 150_000


def test_readme_is_short():
    assert len(README.splitlines()) <= 110


def test_every_target_named_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    for target in set(re.findall(r"(?:`|^)make ([a-z-]+)", README, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


def test_every_command_of_the_table_exists():
    modules = {path.stem for path in (ROOT / "gpucheck/cli").glob("[a-z]*")}

    assert set(re.findall(r"^\| `gpucheck ([a-z]+)", README, re.MULTILINE)) <= modules
