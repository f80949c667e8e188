"""docs/integrations: whatever way gpucheck breaks, the node stays as it was, and what is logged is one short line."""

import re
import subprocess
import sys

import pytest

from tests.integrations.test_statuses import DRAINED, IDLE, PAGES, REASON, ROOT, SCONTROL, environment, slurm
from tests.playbooks.stubs import script
from tests.shared import END_S, sampled

REAL = f"{sys.executable} -m gpucheck"
# How gpucheck breaks: the body of the program of that name, None where there is none. $BROKEN is a folder.
BROKEN = {
    "missing": None,
    "cannot be run": "#!/no/such/interpreter\n",
    "broken import": f'PYTHONPATH=$BROKEN:{ROOT} exec {REAL} "$@" --simulate p100-pcie-x2',
    "full disk": f'exec {REAL} "$@" --simulate p100-pcie-x2 >/dev/full',
    "stdout closed": f'exec {REAL} "$@" --simulate p100-pcie-x2 >&-',
    # Where the interpreter runs out of memory differs, and so does what it says of itself there.
    "no room for a process": f'ulimit -v 35000; exec {REAL} "$@" --simulate p100-pcie-x2 2>/dev/null',
    "killed": "kill -KILL $$",
    "two slurm answers, 0": f"printf '{slurm(2)}{slurm(0)}'; exit 0",
    "hangs": "trap '' TERM; sleep 30",
    "endless": "yes 'GPUCHECK OK - '",
}
# In place of 50 s: the scripts' own words for timeout(1) but for the times.
TIMEOUT = '#!/bin/sh\nshift 2\nexec /usr/bin/timeout --kill-after=0.3 {seconds} "$@"\n'


@pytest.fixture
def broken(tmp_path, request):
    """Run a script with a gpucheck that breaks so; how it ended, and what was asked of the cluster."""
    body = BROKEN[request.param]
    folder = tmp_path / "bin"
    folder.mkdir()
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['msgspec'] = None\n")
    seconds = "0.5" if request.param in ("hangs", "endless") else "30"
    programs = {"scontrol": SCONTROL, "timeout": TIMEOUT.format(seconds=seconds)}
    if body is not None:
        programs["gpucheck"] = body if body.startswith("#!") else f"#!/bin/sh\n{body}\n"
    for name, text in programs.items():
        script(folder / name, text)
    notes = folder / "notes"

    def run(command, node=IDLE):
        own = {"PATH": f"{folder}:/usr/bin:/bin", "LC_ALL": "C", "PYTHONPATH": str(ROOT), "BROKEN": str(tmp_path)}
        around = environment(folder, NODE=node, **own)
        around.pop("GPUCHECK_SIMULATOR", None)
        done = subprocess.run(command, env=around, capture_output=True, check=False, timeout=END_S)
        return done, notes.read_text() if notes.exists() else ""

    return run


every_way = pytest.mark.parametrize("broken", sampled(BROKEN, lambda number, _: number % 3 == 0), indirect=True)


def tidy(text):
    """Lines of printable ASCII, none of them long; the shell's own message of a killed child is among them."""
    return all(len(line) <= 400 and re.fullmatch(rb"[ -~]*", line) for line in text.splitlines())


@every_way
def test_slurm_leaves_the_node_as_it_was_and_starts_the_job(broken):
    for node in (IDLE, DRAINED):
        done, changes = broken([PAGES / "slurm/gpucheck-health"], node)

        assert (done.returncode, changes) == (0, "")
        assert b"n1: left as it is: no verdict (exit status " in done.stderr
        assert tidy(done.stderr)

    # Nothing was kept of it for the prolog.
    done, _ = broken([PAGES / "slurm/gpucheck-prolog"])
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"the job is started: " in done.stderr
    assert tidy(done.stderr)


@pytest.mark.parametrize("broken", ["killed"], indirect=True)
@pytest.mark.parametrize(
    "reason", [r"\033[2J\r", "$(touch x)", "`touch x`", "gpucheck:a;b", "Reason=x", "a" * 300, "*"]
)
def test_a_reason_that_is_not_of_the_grammar_is_no_verdict(broken, tmp_path, reason):
    """Nothing that a host or a user named can become an argument of scontrol."""
    text = slurm(2).replace(REASON, f"{REASON} {reason}" if reason[0] != "g" else reason)
    (tmp_path / "bin/gpucheck").write_text(f"#!/bin/sh\nprintf '{text}'\nexit 2\n")

    for name in ("health", "prolog", "epilog"):
        done, changes = broken([PAGES / f"slurm/gpucheck-{name}"])
        assert (done.returncode, changes, tidy(done.stderr)) == (0, "", True)
