"""Signals at random moments: the old output stays whole, and no process, shared memory or temporary folder is left."""

import random
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from gpucheck.processes.temporary import temporary_folder
from tests.cli.commands import GPUCHECK
from tests.shared import END_S, sampled
from tests.train.conftest import heed_interrupts, hidden_gpus, wait_until

pytestmark = pytest.mark.slow

SIMULATE = ["--simulate", "p100-pcie-x2"]
# Each writes its result to a file, and the most seconds after which the signal comes.
COMMANDS = {
    "verify": (["verify", *SIMULATE, "--level", "quick", "--format", "json", "-o"], 1.0),
    "smoke": (["smoke", "--framework", "torch", "--steps", "10", "--format", "json", "-o"], 6.0),
    "collectives": (["collectives", *SIMULATE, "--sizes", "8K,64M", "--format", "json", "-o"], 6.0),
    "bandwidth": (["bandwidth", *SIMULATE, "--format", "json", "-o"], 2.0),
    "record": (["record", *SIMULATE, "-o"], 1.0),
    "simulate": (["simulate", *SIMULATE[1:], "-o"], 1.0),
}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
AT_ONCE = (signal.SIGQUIT, signal.SIGKILL)  # not handled: what is left is the next run's to remove
OLD = "the old report\n"


# Every command with one of the signals; two moments.
SEARCH = [(command, number, seed) for command in COMMANDS for number in SIGNALS for seed in (1, 2)]


def in_sample(place, _):
    row, column = divmod(place // 2, len(SIGNALS))
    return column == 2 * row % len(SIGNALS) and place % 2 != row % 2


@pytest.mark.parametrize(("command", "number", "seed"), sampled(SEARCH, in_sample))
def test_a_signal_at_any_moment_leaves_nothing(tmp_path, monkeypatch, marked, command, number, seed):
    arguments, longest = COMMANDS[command]
    temporary, output = tmp_path / "tmp", tmp_path / "out" / "report"
    temporary.mkdir()
    output.parent.mkdir()
    if command != "simulate":  # which takes an empty folder only
        output.write_text(OLD)
    shared = set(Path("/dev/shm").iterdir())
    environment = marked.environment | {"TMPDIR": str(temporary)} | hidden_gpus(arguments)
    process = subprocess.Popen(
        [*GPUCHECK, *arguments, str(output)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    time.sleep(random.Random(f"{command} {number} {seed}").uniform(0.05, longest))
    process.send_signal(number)
    _, printed = process.communicate(timeout=END_S)
    wait_until(lambda: marked.running() == [], 30.0)

    # Python's own start and end cannot be interrupted cleanly, and have nothing of ours yet or any more.
    assert process.returncode in (-number, 128 + number, 0, 1, 2, 3), printed
    if command != "simulate" and process.returncode not in (0, 1, 2, 3):
        assert output.read_bytes() == OLD.encode() or output.stat().st_size > len(OLD)
    leftovers = list(temporary.iterdir())
    if number not in AT_ONCE and process.returncode != -number:
        assert leftovers == []
        assert [path.name for path in output.parent.iterdir()] in (["report"], [])
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with temporary_folder("next"):
        pass
    assert list(temporary.iterdir()) == []
    assert not [path for path in set(Path("/dev/shm").iterdir()) - shared if _abandoned(path)]


def _abandoned(path):
    """Shared memory of torch whose process has ended; other programs of this machine have theirs there too."""
    owner = re.match(r"torch_(\d+)_", path.name)
    return owner is not None and not Path(f"/proc/{owner[1]}").exists()
