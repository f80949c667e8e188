"""What follows from the plans, for all hosts at once: the source of gpucheck, and who needs nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.playbooks.modules import action, shared
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play
from tests.shared import sampled

plans = action("stack_plans")
record = shared("record")

WHEEL = {"path": "/build/wheels/0123/gpucheck_cluster-1-py3-none-any.whl", "digest": "d", "sha256": "ab" * 32}
PLACE, INDEX = "/var/lib/gpucheck/bundle", "https://torch.example/"
BUNDLED = [{"name": "gpucheck-bundle"}]
FILE = "file:///opt/gpucheck/wheels/gpucheck_cluster-1-py3-none-any.whl"


def origin(torch=None, repositories=(), **choices):
    return plans.origin({"stack": {"torch": torch}, "repositories": repositories}, WHEEL, choices, PLACE, INDEX)


def test_torch_comes_from_its_own_index_where_the_plan_says_so():
    found = origin({"version": "2.8.0", "build": "cu128", "origin": "index"})

    own = f"gpucheck-cluster @ {FILE} --hash=sha256:{'ab' * 32}"
    assert found["requirements"] == f"--requirement requirements.lock\n{own}\n"
    assert found["torch"] == "torch==2.8.0+cu128"
    assert found["pip_args"] == ["--extra-index-url", "https://torch.example/cu128"]


@pytest.mark.parametrize(
    ("repositories", "choices", "pip"),
    [
        ((), {"gpucheck_pip_args": ["--index", "site"]}, ["--index", "site"]),
        ((), {"gpucheck_pip_args": []}, []),
        (BUNDLED, {}, ["--no-index", "--find-links", f"{PLACE}/wheels"]),
        (BUNDLED, {"gpucheck_pip_args": ["--index", "site"]}, ["--no-index", "--find-links", f"{PLACE}/wheels"]),
    ],
)
def test_the_site_chooses_the_index_and_a_bundle_is_the_only_source(repositories, choices, pip):
    torch = {"version": "2.8.0", "build": "cu128", "origin": "index"}
    assert origin(torch, repositories, **choices)["pip_args"] == pip


def test_everything_that_decides_is_in_the_digest():
    """Each of these has to reinstall gpucheck, and nothing else does."""
    torch = {"version": "2.8.0", "build": "cu128", "origin": "pypi"}
    found = [
        origin(),
        origin(torch),
        origin({**torch, "origin": "index"}),
        origin(gpucheck_python="python3.11"),
        origin(gpucheck_image="registry/gpucheck:1"),
        origin(gpucheck_pip_args=["--index", "site"]),
        origin(repositories=BUNDLED),
        plans.origin({}, {**WHEEL, "digest": "e"}, {}, PLACE, INDEX),
    ]
    assert len({row["digest"] for row in found}) == len(found)
    assert origin(gpucheck_python="python3")["digest"] == origin()["digest"]


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda part: st.lists(part), max_leaves=8)


@given(st.dictionaries(st.text(), JSON, min_size=1))
def test_controller_and_host_digest_a_plan_alike(plan):
    """What the host read back from its own file."""
    assert plans.digest(plan) == record.digest(json.loads(json.dumps(plan)))


PLAN = {"schema": "s", "stack": {"driver": "580"}}
READ = {"recorded": plans.digest(PLAN), "state": {"differences": {}}, "requirements": "r"}


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        (READ, True),
        ({**READ, "recorded": plans.digest({**PLAN, "stack": {"driver": "575"}})}, False),
        ({**READ, "requirements": "other"}, False),
        ({**READ, "state": {}}, False),
        ({**READ, "recorded": ""}, False),
        ({}, False),
    ],
)
def test_a_host_is_as_planned_only_where_it_compared_itself_with_this_very_plan(read, answer):
    assert plans.as_planned(read, PLAN, "r") is answer


def test_a_python_that_is_newer_than_the_controller_supports_is_named_once():
    """A host sends any text as its version."""
    reads = {
        f"n{number}": {"python": version} for number, version in enumerate(["3.14.0", "3.15.1", "3.12.9", "9" * 99, ""])
    }

    found = plans.python_warning(reads, (3, 12))

    assert found.startswith("Python 3.14 on n0 and 1 more is newer than ansible-core ")
    assert "supports (3.12)" in found
    assert plans.python_warning(reads, (3, 15)) == ""
    assert (3, 12) <= plans.newest_python() < (3, 99)


GPUCHECK = """#!/bin/sh
echo "$@" >{folder}/words
while [ $# -gt 0 ]; do [ "$1" = --all-hosts ] && every=$2; shift; done
mkdir -p "$every"
echo '{{"schema": "s", "stack": {{"torch": null}}}}' >"$every/n1.json"
echo "group one"
echo "{stderr}" >&2
exit {status}
"""


def compute(tmp_path, status, stderr="", program_text=GPUCHECK):
    """A playbook that computes plans with a stand-in for gpucheck; n2 gave no facts today, n3 never did."""
    program = script(tmp_path / "gpucheck", program_text.format(folder=tmp_path, status=status, stderr=stderr))
    (tmp_path / "facts").mkdir()
    (tmp_path / "facts/n2.json").write_text("{}")
    known = {"n1": {"gpu_facts_read": {"facts": {"gpus": [], "host": "../n2"}}}, "n2": None, "n3": None}
    words = {"gpucheck": program, "spec": "stack.yml", "lock": "lock.yml", "folder": str(tmp_path)}
    task = {"source": "spec", **words, "wheel": WHEEL, "bundle_place": PLACE, "torch_index": INDEX}
    tasks = [
        {"gpucheck.provision.stack_plans": task, "register": "made"},
        {"ansible.builtin.debug": {"msg": "MADE {{ made.plans.keys() | list }} {{ made.plans.n1.requirements }}"}},
    ]
    return play(tmp_path, [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}], hosts=known)


@pytest.mark.slow
@pytest.mark.parametrize("status", sampled([0, 2, 3], (1,)))
def test_one_call_resolves_all_hosts_that_ever_gave_facts(tmp_path, status):
    """2 and 3 refuse single hosts, whose plan files say so."""
    done = compute(tmp_path, status)

    assert done.returncode == 0, done.stdout
    assert "\ngroup one\n" in done.stdout
    assert "MADE ['n1'] --requirement requirements.lock" in done.stdout
    given = [word for word in (tmp_path / "words").read_text().split() if word.endswith(".json")]
    assert given == [f"{tmp_path}/facts/n1.json", f"{tmp_path}/facts/n2.json"]
    assert json.loads((tmp_path / "facts/n1.json").read_text()) == {"gpus": [], "host": "n1"}


@pytest.mark.slow
@pytest.mark.parametrize("status", sampled([0, 2, 3], (2,)))
def test_a_plan_of_an_earlier_run_is_never_taken_for_one_of_this(tmp_path, status):
    """Not even where gpucheck says that it refused single hosts."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans/n1.json").write_text('{"schema": "s", "stack": {"torch": null}}')

    done = compute(tmp_path, status, "nothing fits", "#!/bin/sh\necho {stderr} >&2\nexit {status}\n")

    assert done.returncode == 2
    assert "could not be resolved into plans, no host was changed. nothing fits" in " ".join(done.stdout.split())
    assert not (tmp_path / "plans/n1.json").exists()


BACK = {"group": "g", "repositories": [], "stack": {}}


@pytest.mark.parametrize(
    "read",
    [
        {"way_back": "x"},
        {"way_back": [1]},
        {"way_back": {"stack": {}}},
        {"way_back": {**BACK, "group": 5}},
        {"way_back": {**BACK, "group": "../../reports/n1"}},
        {"way_back": {**BACK, "repositories": 3}},
        {"way_back": BACK, "plan": [1]},
    ],
)
def test_a_way_back_that_is_none_refuses_its_host_alone(tmp_path, read):
    folder = {"folder": str(tmp_path)}
    plans.ActionModule.record(None, folder, {"bad": read, "good": {"way_back": BACK}})

    refused = json.loads((tmp_path / "way-back/bad.json").read_text())
    assert "the set that is recorded on bad cannot be used" in refused["conflicts"][0]["because"]
    assert json.loads((tmp_path / "way-back/good.json").read_text()) == BACK


@pytest.mark.slow
def test_a_specification_that_cannot_be_read_ends_the_run_with_gpuchecks_words(tmp_path):
    done = compute(tmp_path, 64, "stack.yml:3: no such key")
    words = " ".join(done.stdout.split())

    assert done.returncode == 2
    assert "stack.yml could not be resolved into plans, no host was changed. stack.yml:3: no such key" in words
    assert "MADE" not in words


TORCH_PLAN = {"stack": {"torch": {"version": "2.14.1"}}}


@pytest.mark.parametrize(
    ("plan", "choices", "expected"),
    [
        (TORCH_PLAN, {}, True),
        (TORCH_PLAN, {"gpucheck_pip_args": ["--timeout", "60"]}, True),
        (TORCH_PLAN, {"gpucheck_pip_args": ["--extra-index-url", "https://wheels.example/simple"]}, True),
        (TORCH_PLAN, {"gpucheck_pip_args": ["--index-url", "https://wheels.example/simple"]}, False),
        (TORCH_PLAN, {"gpucheck_pip_args": ["--no-index", "--find-links=/srv/wheels"]}, False),
        (TORCH_PLAN, {"gpucheck_pip_args": ["-i", "https://wheels.example/simple"]}, False),
        (TORCH_PLAN, {"gpucheck_image": "registry.example/gpucheck:1"}, False),
        ({**TORCH_PLAN, "repositories": [{"name": "gpucheck-bundle"}]}, {}, False),
    ],
)
def test_torch_from_public_indexes_is_recognized(plan, choices, expected):
    assert plans.from_internet(plan, choices) is expected


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
    plan = TORCH_PLAN if torch else {"stack": {"torch": None}}
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
