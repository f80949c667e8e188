"""What gets through of a host's result, and which names of hosts become names of files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.stack.facts import FactsError
from gpucheck.stack.facts import file_name as facts_file_name
from tests.playbooks.modules import PLUGINS, action, controller

node = controller()
KNOWN = {
    "rows": {"type": "dict", "returned": "success", "contains": {"*": {"type": "list", "elements": "str"}}},
    "count": {"type": "int", "returned": "sometimes"},
    "plan": {"type": "dict", "returned": "sometimes"},
}
MODULES = sorted(path for path in (PLUGINS / "modules").glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_module_that_runs_on_a_host_is_documented_field_by_field(path):
    """Its documentation is what its results are decoded against; those of the controller alone need none."""
    known = node.fields(path)
    own = PLUGINS / f"action/{path.name}"

    assert all(row["type"] in node.TYPES and row["returned"] for row in known.values())
    # Whatever runs a module of ours on a host hands its result on through the one door.
    runs = own.is_file() and "_execute_module" in own.read_text()
    assert not runs or "node_result.received(" in own.read_text()
    assert own.is_file() or known


@pytest.mark.parametrize(
    ("result", "field"),
    [
        ({}, "rows is missing"),
        ({"rows": []}, "rows: a list in place of type dict"),
        ({"rows": {"a": "x"}}, "rows.a: a text in place of type list"),
        ({"rows": {"a": [1]}}, r"rows.a\[0\]: a number in place of type str"),
        ({"rows": {}, "count": True}, "count: a truth value in place of type int"),
        ({"rows": {}, "count": None}, "count: nothing in place of type int"),
        ({"rows": {}, "ansible_stats": {}}, "ansible_stats is not one of its fields"),
        ({"rows": {}, "a\x1b[2J": 1}, r"a\\x1b\[2J is not one of its fields"),
        ({"rows": {}, "failed": "no"}, "failed: a text in place of type bool"),
        ({"rows": {}, "plan": json.loads("[" * 40 + "]" * 40)}, "plan is nested deeper than 32 levels"),
        ({"rows": {}, "plan": {"a": "x" * (5 << 20)}}, "plan: more than 4194304 characters"),
        ({"rows": {"a": ["x"] * 300_000}}, "rows: more than .* or 262144 values"),
        ({"rows": {}, "diff": ["x"]}, "diff: something else than texts"),
        ({"rows": {}, "diff": {"before": ["x"]}}, "diff: something else than texts"),
        ({"rows": {}, "count": 10**400}, "count: a number of more than 64 bits"),
        ({"rows": {}, "plan": {"a": [float("nan")]}}, "plan: a number of more than 64 bits"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_its_field(result, field):
    with pytest.raises(node.Unfit, match=f"^field {field}"):
        node.decoded(result, KNOWN)


def test_a_failure_needs_no_field_and_says_why_on_one_line():
    words = "a\nb\x1b[2J" + "x" * 9000
    found = node.decoded({"failed": True, "msg": words, "module_stderr": words}, KNOWN)

    for name in ("msg", "module_stderr"):
        assert found[name].startswith(r"a\nb\x1b[2Jxxx")
        assert len(found[name]) < 4100


def test_words_are_put_on_one_line_and_contents_of_files_are_left_alone():
    given_result = {"rows": {"a": ["x\ny"]}, "plan": {"content": "x\ny"}}

    assert node.decoded(given_result, KNOWN) == {"rows": {"a": [r"x\ny"]}, "plan": {"content": "x\ny"}}


def test_a_difference_of_mappings_is_shown_as_text():
    """Ansible's file module states one: with ansible-core 2.16 always, later with --diff."""
    diff = {
        "before": {"path": "/x", "state": "absent"},
        "after": {"path": "/x\x1b", "state": "directory"},
        "prepared": None,
    }

    (found,) = node.decoded({"changed": True, "diff": diff}, None)["diff"]

    assert found["before"] == '{"path": "/x", "state": "absent"}'
    assert "\x1b" not in found["after"]


NAMES = st.text(max_size=5) | st.sampled_from(["..", ".", "", "a/b", "a\\b", "x" * 201, "\u00e4" * 101, "\ud800"])


@given(NAMES)
def test_both_sides_take_the_same_names_for_files_and_none_leaves_its_folder(name):
    def taken(one, wrong):
        try:
            return one(name)
        except wrong:
            return None

    found = taken(node.file_name, ValueError)

    assert found == taken(facts_file_name, FactsError)
    if found is not None:
        assert not {"/", "\\", "\0", "\n"} & set(found)
        assert found.strip(".")


REPORT = {"schema": "gpucheck.report/1", "verdict": "pass", "host": "other", "findings": []}


def test_a_report_is_the_one_of_the_host_that_the_inventory_names():
    assert action("gpu_verify").report_of(json.dumps(REPORT), "node01") == {**REPORT, "host": "node01"}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "[" * 100_000, json.dumps({**REPORT, "schema": "x"}), json.dumps({**REPORT, "verdict": "PASS"}),
        json.dumps({**REPORT, "findings": "x"}), json.dumps({**REPORT, "findings": [{"check": 1}]}),
        json.dumps({**REPORT, "seconds": float("nan")}), '{"a": ' * 900 + "1" + "}" * 900,
    ],
    ids=range(10),
)  # fmt: skip
def test_what_is_no_report_is_none(text):
    with pytest.raises(ValueError, match=r"."):
        action("gpu_verify").report_of(text, "node01")
