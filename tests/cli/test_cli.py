"""What people type: help and wrong usage."""

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["verify", "--format", "jnuit"],
        ["verify", "--only", "nvlnk"],
        ["verify", "--fault", "nouveau"],
        ["verify", "--simulate", "hgx-h100"],
        ["verify", "--only", "driver", "--skip", "driver"],
        ["verify", "--from", "x", "--simulate", "hgx-h100-x8"],
        ["verify", "--simulate", "hgx-h100-x8", "--simulate", "p100-pcie-x2"],
        ["compute", "--level", "burn-in", "--max-temperature", "nan"],
        ["collectives", "--ranks", "99999999"],
        ["fleet", "report", "does-not-exist"],
        ["record"],
        ["record", "-o", "/"],
        ["stack", "resolve", "--from", "x", "--gpu", "H200", "--os", "ubuntu-22.04"],
        ["stack", "check", "--from", "x", "--import-torch"],
        ["topo", "--nonsense"],
        ["topo", "--import"],
        ["topo", "surplus"],
        ["topo", "--format", "yaml"],
        ["topo", "--import", "x", "--simulate", "dgx2-v100"],
        ["topo", "--import", "x", "--from", "x"],
        ["topo", "--from", "does-not-exist"],
        ["topo", "--from", "/"],
        ["topo", "--fault", "nouveau"],
        ["topo", "--best", "0"],
        ["topo", "--best", "two"],
    ],
)
def test_wrong_usage_is_64_and_one_clear_message(run, arguments):
    """64, because click's own 2 would read as FAIL."""
    status, out, err = run(*arguments)

    assert status == 64
    assert out == ""
    assert "Error: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("group", ["stack", "fleet", "bundle"])
def test_group_without_a_subcommand_prints_its_help(group, run):
    status, out, err = run(group)

    assert (status, out) == (64, "")
    assert err.startswith(f"Usage: gpucheck {group}")
    assert "\nCommands:\n" in err
    assert "Error" not in err


def test_a_near_miss_gets_a_suggestion(run):
    _, _, err = run("verify", "--only", "nvlnk")

    assert "Did you mean nvlink?" in err
