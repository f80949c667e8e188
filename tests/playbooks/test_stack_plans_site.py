"""What a site should consider before many hosts fetch torch, and its own rows of the tables."""

import json

import pytest

from tests.playbooks.modules import action
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play

plans = action("stack_plans")
PLAN = {"stack": {"torch": {"version": "2.14.1"}}}


@pytest.mark.parametrize(
    ("plan", "choices", "expected"),
    [
        (PLAN, {}, True),
        (PLAN, {"gpucheck_pip_args": ["--timeout", "60"]}, True),
        (PLAN, {"gpucheck_pip_args": ["--extra-index-url", "https://wheels.example/simple"]}, True),
        (PLAN, {"gpucheck_pip_args": ["--index-url", "https://wheels.example/simple"]}, False),
        (PLAN, {"gpucheck_pip_args": ["--no-index", "--find-links=/srv/wheels"]}, False),
        (PLAN, {"gpucheck_pip_args": ["-i", "https://wheels.example/simple"]}, False),
        (PLAN, {"gpucheck_image": "registry.example/gpucheck:1"}, False),
        ({**PLAN, "repositories": [{"name": "gpucheck-bundle"}]}, {}, False),
    ],
)
def test_torch_from_public_indexes_is_recognized(plan, choices, expected):
    assert plans.from_internet(plan, choices) is expected


@pytest.mark.parametrize(("hosts", "expected"), [(20, ""), (21, "21 hosts download torch"), (500, "(1500 GB)")])
def test_more_than_20_downloads_are_a_warning_with_its_remedies(hosts, expected):
    text = plans.torch_warning([{"downloads": True}] * hosts + [{"downloads": False}] * 30)

    assert bool(text) == bool(expected)
    assert expected in text
    if text:
        assert "gpucheck_pip_args" in text
        assert "torch: none" in text


class Templates:
    """In place of Ansible's: values as they are."""

    def __init__(self, **_):
        pass

    def template(self, value):
        return value


@pytest.mark.parametrize(
    ("torch", "done", "expected"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_host_that_has_it_or_wants_none_downloads_nothing(tmp_path, monkeypatch, torch, done, expected):
    monkeypatch.setattr(plans, "Templar", Templates)
    plan = PLAN if torch else {"stack": {"torch": None}}
    (tmp_path / "n1.json").write_text(json.dumps(plan))
    wheel = {"path": "/build/gpucheck.whl", "digest": "d", "sha256": "ab"}
    arguments = {"wheel": wheel, "bundle_place": "/b", "torch_index": "https://torch.example/"}
    digest = plans.origin(plan, wheel, {}, "/b", "https://torch.example/")["digest"]
    module = type("Module", (), {"_loader": None})()

    row = plans.ActionModule.host_row(
        module, "n1", tmp_path / "n1.json", arguments, {"requirements": digest if done else "x"}, {}
    )

    assert row["downloads"] is expected


@pytest.mark.parametrize("knowledge", ["/srv/knowledge", None])
def test_rows_of_the_site_are_passed_on(tmp_path, knowledge):
    text = (
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\nmkdir -p {tmp_path}/.plans; echo {{}} > {tmp_path}/.plans/n1.json\n'
    )
    program = script(tmp_path / "gpucheck", text)
    files = {"gpucheck": program, "folder": str(tmp_path), "spec": "stack.yml", "lock": "lock.yml", "bundle": None}

    plans.ActionModule.spec(None, {**files, "knowledge": knowledge}, {"n1": {"facts": {}}})

    words = (tmp_path / "words").read_text()
    assert words.startswith("stack --knowledge-dir /srv/knowledge lock " if knowledge else "stack lock ")


@pytest.mark.slow
def test_playbook_shows_the_warning_once_and_goes_on(tmp_path):
    hosts = [f"n{number}" for number in range(21)]
    lines = [f"echo '{json.dumps(PLAN)}' > {tmp_path}/.plans/{name}.json" for name in hosts]
    program = script(tmp_path / "gpucheck", "\n".join(["#!/bin/sh", f"mkdir -p {tmp_path}/.plans", *lines]))
    facts = {name: {"gpu_facts_read": {"facts": {}}} for name in hosts}
    words = {"gpucheck": program, "spec": "w", "lock": "l", "folder": str(tmp_path), "knowledge": "/srv/knowledge"}
    task = {"source": "spec", **words, "wheel": {}, "bundle_place": "/b", "torch_index": "https://torch.example/"}
    tasks = [{"gpucheck.provision.stack_plans": task}]

    done = play(tmp_path, [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}], hosts=facts)

    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, text
    assert text.count("21 hosts download torch from public indexes") == 1
