"""What people type: help, wrong usage, exit status, files written whole or not at all."""

import json

import pytest

from gpucheck.cli import main
from tests.fleet.test_merge import write


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    out, err = capsys.readouterr()
    return stop.value.code or 0, out, err


def test_help_names_every_command_with_a_line(capsys):
    status, out, _ = run(capsys, "--help")

    assert status == 0
    for command in ("verify", "topo", "fleet", "stack", "lab", "smoke", "profiles", "simulate"):
        assert f"\n  {command} " in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["verify", "--format", "jnuit"],
        ["verify", "--only", "nvlnk"],
        ["verify", "--fault", "nouveau"],
        ["verify", "--simulate", "hgx-h100"],
        ["verify", "--only", "driver", "--skip", "driver"],
        ["fleet", "report", "does-not-exist"],
    ],
)
def test_wrong_usage_is_64_and_one_clear_message(capsys, arguments):
    """64, because click's own 2 would read as FAIL."""
    status, out, err = run(capsys, *arguments)

    assert status == 64
    assert out == ""
    assert "Error: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("group", ["stack", "fleet", "bundle"])
def test_group_without_a_subcommand_prints_its_help(group, capsys):
    status, out, err = run(capsys, group)

    assert (status, out) == (64, "")
    assert err.startswith(f"Usage: gpucheck {group}")
    assert "\nCommands:\n" in err
    assert "Error" not in err


def test_a_near_miss_gets_a_suggestion(capsys):
    _, _, err = run(capsys, "verify", "--only", "nvlnk")

    assert "Did you mean nvlink?" in err


def test_the_verdict_is_the_exit_status_and_the_file_is_whole(capsys, tmp_path):
    output = tmp_path / "new" / "report.json"

    status, out, _ = run(
        capsys, "verify", "--simulate", "p100-pcie-x2", "--level", "quick", "--format", "json", "-o", str(output)
    )

    assert (status, out) == (0, "")
    assert json.loads(output.read_text())["verdict"] == "pass"
    assert list(output.parent.iterdir()) == [output]


def test_an_unwritable_output_is_one_message_and_loses_nothing(capsys, tmp_path):
    (tmp_path / "file").write_text("old")

    status, _, err = run(
        capsys, "verify", "--simulate", "p100-pcie-x2", "--level", "quick", "-o", str(tmp_path / "file" / "report")
    )

    assert status == 64
    assert "cannot write" in err
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize(
    ("fault", "status", "word"),
    [
        ("driver-mismatch", 2, "driver-mismatch"),
        ("driver-not-loaded", 2, "driver-not-loaded"),
        ("gpu-missing:gpu=1", 2, "gpu-lost"),
        ("pcie-width:gpu=1,width=8", 2, "pcie-width-reduced"),
        ("nvlink-down:gpu=2,link=3", 2, "nvlink-down"),
        ("fabric-in-progress", 1, "still training"),
    ],
)
def test_a_broken_simulated_machine_is_caught_from_the_command_line(capsys, fault, status, word):
    """From the flag to the exit status, through the real pynvml."""
    answer, out, _ = run(capsys, "verify", "--simulate", "hgx-h100-x8", "--level", "quick", "--fault", fault)

    assert word in out
    assert "SIMULATED" in out
    assert answer == status


def test_the_fleet_report_exits_with_the_fleets_verdict(capsys, tmp_path):
    write(tmp_path, "a")

    assert run(capsys, "fleet", "report", str(tmp_path))[0] == 0
    assert run(capsys, "fleet", "report", str(tmp_path), "--expect-host", "a,b")[0] == 3


def test_an_empty_report_folder_is_unknown_with_the_next_step(capsys, tmp_path):
    status, _, err = run(capsys, "fleet", "report", str(tmp_path))

    assert status == 3
    assert "gpucheck verify --format json" in err
