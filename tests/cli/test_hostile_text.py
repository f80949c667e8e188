"""No argument drives the terminal, begins a line or hides text, whichever command reads it; for files: tests/fuzz."""

import sys

import pytest

from gpucheck.cli import main
from tests.fleet import reports
from tests.render.hostile import FORGED, raw
from tests.shared import sampled

PAYLOADS = {
    "osc": "\x1b]0;owned\x07",
    "erase": "\x1b[2J\x1b[1;1H\x1b[8m",
    "c1": "\x9b2J\x9d0;owned\x9c",
    "overwrite": f"bad\r{FORGED}",
    "newline": f"bad\n{FORGED}",
    "separator": f"bad\u2028{FORGED}\u2029{FORGED}\x0b{FORGED}",
    "bidi": "\u202e\u2066drowssap\u2069\u061c\u200f",
    "invisible": "no\u200bde\u2060\ufeff\u00ad\U000e0041\ufe0f\u3164",
    "bytes": "no\udcff\udc9bde",
    "long": "x" * 5000,
    "formats": "%s %d {} {0} {{x}} $(id) `id`",
    "markup": "[red]node[/red] [link=file:///x]y[/link] [/]",
}
MESSAGE = 1000  # characters: usage, and a message of about 600

# P is the text; in braces, an honest file or folder.
NAMES = """
explain P
explain xid:P
verify --from P
verify --only P --simulate p100-pcie-x2
verify --simulate P
verify --simulate p100-pcie-x2 --fault P
verify --simulate p100-pcie-x2 --fault xid:code=P
verify --expect P
verify --baseline P
verify -o /dev/null/P
topo --from P
topo --import P
topo --best P
diagnose --observations P
diagnose P
bandwidth --devices P
bandwidth --tensor P --devices 0,0
collectives --only P
smoke --devices P
stack resolve --gpu P --os ubuntu-22.04
stack resolve --gpu H200 --os P
stack resolve --gpu H200 --os ubuntu-22.04 --want P
stack resolve --gpu H200 --os ubuntu-22.04 --want cuda=P
stack lock --spec P --facts P
stack plan --lock P --host P
stack plan --lock {lock} --host P
simulate P -- true
fleet report P
fleet report {reports} --labels P
fleet report {reports} --baseline P
fleet report {reports} --expect-host P
fleet report {reports} --select 1 --gpu-model P
fleet report {reports} --write P
image build P
image context P
bundle verify P
lab status --name P
lab up --subnet P
record -o /dev/null/P
P
verify P
verify --P
verify --format P
fleet P
"""


@pytest.fixture
def made(tmp_path):
    """What the lines name in braces."""
    (tmp_path / "reports").mkdir()
    reports.write(tmp_path / "reports", *reports.steady(3))
    (tmp_path / "lock.yml").write_text("schema: gpucheck.lock/1\ngroups: {}\n")
    return {"lock": tmp_path / "lock.yml", "reports": tmp_path / "reports", "folder": tmp_path}


def words_of(line, text, made):
    return [
        word.format(**made) if "{" in word else word.replace("P", text) if "P" in word else word
        for word in line.split()
    ]


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """A command as a user starts it: the process's own streams, which the capture of pytest has redirected."""
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)  # as on a terminal
    monkeypatch.chdir(tmp_path)

    def started(words):
        monkeypatch.setattr(sys, "stdout", sys.__stdout__)
        monkeypatch.setattr(sys, "stderr", sys.__stderr__)
        with pytest.raises(SystemExit) as stop:
            main(words)
        return stop.value.code or 0, *capfd.readouterr()

    return started


def one(run, line, words):
    """Every complaint about one command."""
    status, out, err = run(words)
    found = [f"raw on stdout: {out!r:.300}"] if raw(out) else []
    found += [f"raw on stderr: {err!r:.300}"] if raw(err) else []
    if "lock" not in line:  # which reports what it refused, with sources, in several lines
        found += [f"{len(err)} characters on stderr"] if len(err) > MESSAGE else []
    return found + ([f"status {status}: {err[-300:]}"] if status not in (0, 1, 2, 3, 64, 126, 127) else [])


@pytest.mark.parametrize("kind", sampled(PAYLOADS, lambda _, kind: kind in ("newline", "osc", "bytes")))
def test_no_command_prints_an_argument_raw(run, made, kind):
    found = {}
    for line in filter(None, NAMES.splitlines()):
        complaints = one(run, line, words_of(line, PAYLOADS[kind], made))
        found |= {line: complaints} if complaints else {}

    assert not found, "\n".join(f"{line}: {complaints}" for line, complaints in found.items())
