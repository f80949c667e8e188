"""gpucheck schema: a JSON Schema of every published document, and every document that is printed follows its own."""

import gzip
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from gpucheck.cli import cli
from gpucheck.cli.schema import DOCUMENTS, schema_of
from gpucheck.run.steps import train
from tests.cli.documents import follows
from tests.cli.test_help import ALL
from tests.measure.collectives.samples import ended as hung
from tests.run.test_collectives import ended
from tests.shared import sampled
from tests.stack.cli_words import lock_words, site
from tests.train.outcomes import HANG, ON_CPU, ON_GPUS

__all__ = ["site"]  # a fixture is used by its name
ROOT = Path(__file__).parents[2]
TWO = ("--simulate", "p100-pcie-x2")
BROKEN = ("--fault", "pcie-width:gpu=1,width=8", "--fault", "gpu-lost:gpu=3")
# The document -> command lines that print it as JSON; healthy, broken, and where nothing could be read.
COMMANDS: dict[str, list[tuple[str, ...]]] = {
    "report": [
        ("verify", *TWO, "--level", "quick"),
        ("verify", "--simulate", "no-gpu", "--level", "quick"),
        ("verify", "--simulate", "hgx-h100-x8", *BROKEN, "--level", "quick"),
        ("verify", "--simulate", "gb200-x4", "--level", "quick"),
        ("verify", *TWO, "--only", "p2p"),
    ],
    "topology": [("topo", "--simulate", "hgx-h100-x8"), ("topo", *TWO, "--fault", "gpu-lost:gpu=1")],
    "bandwidth": [("bandwidth", *TWO, "--level", "quick", "--fault", "p2p-corrupt:pair=0-1")],
    "collectives": [("collectives", *TWO, "--sizes", "1M")],
    "compute": [("compute", *TWO, "--fault", "sdc:gpu=1")],
    "network": [("network", "--simulate", "hgx-h100-x8", "--fault", "nic-slow:nic=1")],
    "diagnosis": [("diagnose", str(ROOT / "tests/data/topo/{topo}")), ("diagnose", "--observations", "{observations}")],
    "smoke": [("smoke", *TWO, "--framework", "torch", "--steps", "10")],
    "stack": [
        ("stack", "resolve", *TWO),
        ("stack", "resolve", "--gpu", "P100-PCIE-16GB", "--os", "ubuntu-22.04", "--want", "cuda=13.0"),
    ],
    "image": [("image", *TWO, "--level", "quick")],
    "images": [("image", "list")],
    "isolation": [
        ("isolate", "--simulate-fleet", "nodes=64,bad=2,links=1,hangs=1"),
        ("isolate", "--simulate-fleet", "nodes=9"),
    ],
    "history": [("fleet", "history", str(ROOT / "tests/data/slurm/events.txt"))],
    "profiles": [("profiles",)],
    "listing": [("explain", "--list")],
}
# The documents whose numbers come from ranks that import torch.
RANKS = ("smoke", "collectives")
HUNG = hung("deadline", {"at": "all_reduce of 8192 bytes"}, seconds=180.0)
# Commands whose JSON is validated by a test of their own, here or with them.
ELSEWHERE = {
    "bundle files": "tests/bundle/test_cli.py",
    "bundle verify": "tests/bundle/test_cli.py",
    "fleet report": "test_a_fleet_report_follows_its_schema",
    "lab status": "tests/lab/test_lifecycle.py",
    "stack check": "test_lock_plan_and_facts_follow_their_schema",
    "stack check-repositories": "tests/repositories/test_fetching.py",
    "stack plan": "test_lock_plan_and_facts_follow_their_schema",
}


def printed(*words):
    """What a command prints, whatever its verdict."""
    done = CliRunner().invoke(cli, [*words], standalone_mode=False)
    assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
    assert done.return_value in (0, 1, 2, 3, None), done.output
    return done.stdout


@pytest.fixture
def inputs(tmp_path):
    observations = tmp_path / "machine.yml"
    observations.write_text("gpus: {count: 2, model: H100 SXM}\nmatrix: [[X, NV18], [NV18, X]]\n")
    return {
        "observations": str(observations),
        "topo": next(p for p in sorted((ROOT / "tests/data/topo").iterdir()) if p.is_file()).name,
    }


@pytest.mark.parametrize(
    ("name", "words"),
    sampled([(name, words) for name, lines in COMMANDS.items() for words in lines], lambda _, row: row[0] not in RANKS),
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else value,
)
def test_printed_documents_follow_their_schema(name, words, inputs):
    if "smoke" in words:
        pytest.importorskip("torch")
    value = json.loads(printed(*(word.format(**inputs) for word in words), "--format", "json"))

    follows(name, value)
    if name == "bandwidth":
        follows("observations", value["observations"])


@pytest.mark.parametrize(
    ("name", "outcome"),
    [*(("smoke", outcome) for outcome in (ON_CPU, ON_GPUS, HANG)), ("collectives", ended(2)), ("collectives", HUNG)],
)
def test_what_ranks_come_to_follows_its_schema(monkeypatch, name, outcome):
    monkeypatch.setattr(train, "run_smoke", lambda options: outcome)
    monkeypatch.setattr("gpucheck.measure.collectives.run.launch", lambda *_, **__: outcome)

    follows(name, json.loads(printed(*COMMANDS[name][0], "--format", "json")))


def test_lock_plan_and_facts_follow_their_schema(site):
    CliRunner().invoke(cli, list(map(str, ["stack", *lock_words(site)])))
    lock = site / "stack.lock.yml"
    plan = printed("stack", "plan", "--lock", str(lock), "--host", "lab-apt", "--format", "json")
    check = printed("stack", "check", "--lock", str(lock), "--host", "lab-apt", *TWO, "--format", "json")

    follows("report", json.loads(check))
    follows("lock", yaml.safe_load(lock.read_text()))
    follows("plan", json.loads(plan))
    follows("facts", json.loads((site / "lab-apt.json").read_text()))


def test_a_recording_follows_its_schema(tmp_path):
    file = tmp_path / "host.recording"
    printed("record", *TWO, "-o", str(file))

    follows("recording", json.loads(gzip.decompress(file.read_bytes())))


def test_a_fleet_report_follows_its_schema(tmp_path):
    for number in (1, 2):
        words = ("verify", *TWO, "--level", "quick", "--format", "json", "-o", str(tmp_path / f"{number}.json"))
        printed(*words)
        file = tmp_path / f"{number}.json"
        file.write_text(file.read_text().replace('"host": "', f'"host": "n{number}-', 1))
    reports = [str(tmp_path / f"{number}.json") for number in (1, 2)]

    follows("fleet", json.loads(printed("fleet", "report", *reports, "--format", "json")))


def test_every_command_that_prints_json_is_validated():
    """A new command gets a schema: add it above, and its document to the published ones."""
    found = set()
    for name, command in ALL.items():
        options = [one for one in command.params if "--format" in one.opts]
        if any("json" in getattr(option.type, "choices", ()) for option in options):
            found.add(name)

    lines = {" ".join(words[:2]) for rows in COMMANDS.values() for words in rows}
    assert found == ELSEWHERE.keys() | {line if line in found else line.split()[0] for line in lines}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_one_that_validators_read(name):
    schema = schema_of(name)

    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(printed("schema", name)) == schema


@pytest.mark.parametrize("name", [name for name, one in DOCUMENTS.items() if one.schema])
def test_a_document_of_another_schema_is_refused(name):
    value = {"schema": "gpucheck.other/1"}

    errors = jsonschema.Draft202012Validator(schema_of(name)).iter_errors(value)

    assert any("gpucheck" in error.message for error in _all(errors))


def _all(errors):  # with those of the alternatives of an anyOf
    for error in errors:
        yield error
        yield from _all(error.context or ())


def test_the_list_names_every_document():
    lines = printed("schema").splitlines()

    assert [line.split()[0] for line in lines] == list(DOCUMENTS)


def test_the_page_has_every_document():
    page = (ROOT / "docs/schemas.md").read_text()
    rows = dict(re.findall(r"^\| `([\w-]+)` \| `?([\w./-]*)`? \|", page, re.MULTILINE))

    assert rows == {name: one.schema or "none" for name, one in DOCUMENTS.items()}


SNAPSHOTS = ROOT / "tests/data/schemas"
PROMISED = [name for name, one in DOCUMENTS.items() if one.promised]


def snapshot(name):
    """The definitions of a schema without their descriptions, one a line."""
    rows = {key: json.loads(json.dumps(value), object_hook=_undescribed) for key, value in schema_of(name).items()}
    definitions = rows.pop("$defs")
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in {**rows, **definitions}.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _undescribed(node):
    return {key: value for key, value in node.items() if not (key == "description" and isinstance(value, str))}


@pytest.mark.parametrize("name", PROMISED)
def test_a_promised_schema_is_its_snapshot(name):
    """A new key is added to the snapshot by ``python -m tests.cli.test_schema``; a lost one needs the next number."""
    assert snapshot(name) == (SNAPSHOTS / f"{name}.json").read_text()


def test_three_documents_are_promised():
    assert PROMISED == ["report", "recording", "plan"]
    assert {path.stem for path in SNAPSHOTS.iterdir()} == set(PROMISED)


if __name__ == "__main__":
    for promised in PROMISED:
        (SNAPSHOTS / f"{promised}.json").write_text(snapshot(promised))
