"""No name, argument or file drives the terminal, begins a line or hides text, whichever command reads it."""

import copy
import gzip
import json
import re
import subprocess
import sys

import msgspec
import pytest
import yaml

from gpucheck.cli import main
from gpucheck.model import Finding, Verdict
from tests.fleet import reports
from tests.shared import sampled
from tests.stack.hosts import host

FORGED = "PASS  99 hosts"
PAYLOADS = {
    "osc": "\x1b]0;owned\x07",
    "erase": "\x1b[2J\x1b[1;1H\x1b[8m",
    "c1": "\x9b2J\x9d0;owned\x9c",
    "overwrite": f"bad\r{FORGED}",
    "newline": f"bad\n{FORGED}",
    "separator": f"bad\u2028{FORGED}\u2029{FORGED}\x0b{FORGED}",
    "bidi": "\u202e\u2066drowssap\u2069\u061c\u200f",
    "invisible": "no\u200bde\u2060\ufeff\u00ad\U000e0041\ufe0f\u3164",
    "nul": "no\0de",
    "bytes": "no\udcff\udc9bde",
    "long": "x" * 5000,
    "formats": "%s %d {} {0} {{x}} $(id) `id`",
    "markup": "[red]node[/red] [link=file:///x]y[/link] [/]",
}
COLOR = re.compile(r"\x1b\[(?![5-9]m)[0-9;]*m")
RAW = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff\ud800-\udfff]"
)
MESSAGE = 1000  # characters: usage, and a message of about 600

# P is the text; in braces, a file or folder that holds it.
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
simulate --update P
simulate --update {folder} --fault P
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
CONTENTS = """
verify --from {recording}
verify --from {recording} -v
verify --from {recording} --format junit
verify --from {recording} --format nagios
verify --from {recording} --format html
topo --from {recording}
topo --from {recording} --svg -
stack resolve --from {recording}
verify --from {damaged}
topo --import {dump}
topo --import {xml}
diagnose {dump}
diagnose {kernel}
diagnose --observations {observations}
diagnose --observations {unknown_key}
diagnose --observations {broken}
diagnose {broken}
verify --from {recording} --expect {broken}
verify --from {recording} --expect {unknown_key}
verify --from {recording} --baseline {report}
verify --from {recording} --baseline {broken}
verify --simulate {profile}
fleet report {hostile}
fleet report {hostile} -v
fleet report {hostile} --format junit
fleet report {hostile} --format html
fleet report {hostile} --format csv
fleet report {hostile} --select 1
fleet report {hostile} --select 1
fleet report {reports} --labels {broken}
fleet report {reports} --labels {labels}
fleet report {reports} --baseline {broken}
stack plan --lock {lock} --host node01
stack plan --lock {broken}
stack lock --spec {broken} --facts {facts}
stack lock --spec {spec} --facts {facts} -o -
stack lock --spec {spec} --facts {broken}
"""
MUTATED = {"gpucheck", "recorded", "hostname", "os_name", "kernel", "profile", "faults", "stand_ins", "name", "uuid"}
MUTATED |= {"text", "source", "driver_version", "loaded_version", "release", "version", "serial", "vbios", "driver"}


def raw(output):
    """What of it a terminal would obey, or a reader would take for a line of gpucheck's."""
    found = RAW.findall(COLOR.sub("", output))
    return found + [
        line for line in re.split(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]", output) if line.startswith(FORGED)
    ]


def spoilt(value, text, key=""):
    if isinstance(value, dict):
        return {k: spoilt(v, text, k) for k, v in value.items()}
    if isinstance(value, list):
        return [spoilt(v, text, key) for v in value]
    return value + text if isinstance(value, str) and key in MUTATED else value


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recording of a simulated machine, as values."""
    file = tmp_path_factory.mktemp("recorded") / "host.gz"
    words = ("record", "--simulate", "p100-pcie-x2", "--fault", "xid:gpu=1,code=79", "-o", str(file))
    subprocess.run([sys.executable, "-m", "gpucheck", *words], check=True, capture_output=True)
    return json.loads(gzip.decompress(file.read_bytes()))


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))
    return str(path)


def files(folder, text, recorded):
    """Every kind of input with the text in it."""
    valid = text.encode("utf-8", "replace").decode()  # JSON and YAML hold no lone surrogates
    made = {}
    recording = spoilt(copy.deepcopy(recorded), valid)
    recording["environment"] = {"NCCL_P2P_DISABLE": f"1{valid}", "NCCL_X": valid}
    recording["kernel_log"]["lines"] += [
        {"text": f"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name={valid}, GPU has fallen off the bus.", "seconds": 9.0}
    ]
    made["recording"] = write(folder / "recording.json", json.dumps(recording))
    made["damaged"] = write(folder / "damaged.json", json.dumps(recording | {valid: 1, "pci": valid}))
    smi = f"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t{text}\nGPU 0: {text} (UUID: {text})\n"
    made["dump"] = write(folder / "dump.txt", smi)
    made["xml"] = write(
        folder / "topo.xml", f'<system version="1"><cpu numaid="0" arch="{text}"><{text}/></cpu></system>'
    )
    made["kernel"] = write(
        folder / "kernel.txt",
        f"[    9.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name={text}, GPU has fallen off the bus.\n",
    )
    seen = {"gpus": {"count": 2, "model": valid}, "host": {"cpu": valid}, "environment": {"NCCL_P2P_DISABLE": valid}}
    made["observations"] = write(folder / "seen.yml", yaml.safe_dump(seen))
    made["unknown_key"] = write(folder / "unknown.yml", yaml.safe_dump({valid: valid}))
    made["broken"] = write(folder / "broken.yml", f"{text}: [\n  {text}")
    finding = Finding(
        check=valid, verdict=Verdict.WARN, subject=f"gpu:{valid}", seen=valid, wanted=valid, cause=valid, why=valid,
        fix=valid, evidence=(valid,), unit=valid,
    )  # fmt: skip
    report = reports.report(
        f"node{valid}", findings=(finding,), versions={"driver": valid}, verdict=Verdict.WARN,
        topology=reports.topology(name=f"H100{valid}"),
    )  # fmt: skip
    made["report"] = write(folder / "report.json", msgspec.json.encode(report))
    (folder / "hostile").mkdir()
    write(folder / "hostile/a.json", msgspec.json.encode(report))
    write(folder / "hostile/b.json", made["broken"].encode() + text.encode("utf-8", "surrogateescape"))
    write(folder / "hostile/c.json", json.dumps({"schema": valid, "host": valid}))
    made["hostile"] = str(folder / "hostile")
    (folder / "reports").mkdir()
    reports.write(folder / "reports", *reports.steady(3))
    made["reports"] = str(folder / "reports")
    made["labels"] = write(folder / "labels.csv", f'host,rack\nnode01,"{text}"\n"{text}",r2\n')
    made["profile"] = write(folder / "profile.yml", yaml.safe_dump({"summary": valid, valid: valid}))
    facts = msgspec.to_builtins(host("ubuntu-22.04", "p100-pcie-x2"))
    made["facts"] = write(folder / "facts.json", json.dumps(spoilt(facts, valid)))
    made["spec"] = write(folder / "spec.yml", "schema: gpucheck.spec/1\n")
    lock = {"schema": "gpucheck.lock/1", "groups": {valid: {"hosts": {valid: valid}}}, valid: valid}
    made["lock"] = write(folder / "lock.yml", yaml.safe_dump(lock))
    return made | {"folder": str(folder), "name": text}


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


# Every text as an argument or inside every file, in turn.
@pytest.mark.parametrize(
    ("lines", "kind"),
    sampled(
        [(lines, kind) for kind in PAYLOADS for lines in (NAMES, CONTENTS)],
        lambda number, case: number % 2 == number // 2 % 2 or case[1] in ("newline", "bytes"),
    ),
    ids=lambda value: {NAMES: "names", CONTENTS: "contents"}.get(value, value),
)
def test_no_command_prints_text_raw(run, recorded, tmp_path, lines, kind):
    """stdout and stderr of every command, with the text as an argument and inside every file."""
    made = files(tmp_path, PAYLOADS[kind], recorded)
    found = {}
    for line in filter(
        None, lines.splitlines() if kind != "nul" or lines is CONTENTS else ()
    ):  # no argument holds a NUL
        complaints = one(run, line, words_of(line, PAYLOADS[kind], made))
        found |= {line: complaints} if complaints else {}

    assert not found, "\n".join(f"{line}: {complaints}" for line, complaints in found.items())
