"""Results of hosts spoilt in every way that a search finds: none takes anything with it.

One inventory holds many hostile hosts, each with one spoilt result, and an honest one next to them.
"""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.playbooks.hostile import MISSING, honest, report, spoilt
from tests.playbooks.test_hostile_node import ESCAPES, KEY, WAYS, held, ran, run_this

pytestmark = pytest.mark.more

# The modules that each playbook has a host run.
ASKED = {
    "check": ("gpu_facts", "plan_state"),
    "verify": ("gpu_verify",),
    "provision": ("plan_state", "host_lock", "install_record", "planned_packages", "gpu_verify", "*"),
    "rollback": ("gpu_facts", "plan_state", "install_record"),
    "bundle": ("gpu_facts", "transfer_folder", "signing_key", "bundle_packages", "*"),
}
# How many hosts answer with something spoilt.
COUNTS = {"check": 60, "verify": 60, "provision": 30, "rollback": 30, "bundle": 30}
FOLDER = "$FOLDER"
PIPE = "{{ lookup('pipe', 'touch $FOLDER/CANARY') }}"
TEXTS = st.sampled_from(
    [ESCAPES, KEY, PIPE, "{% for x in y %}", "../../../../evil/x", f"{FOLDER}/evil/x", "good", "./good", "", ".", "..",
     "a\x00b", "\u202e\u2066", "\ud800", "x" * 5000, "-e", "localhost", "\r\ngood  changed", "\x9b31m"]
)  # fmt: skip
VALUES = st.one_of(
    TEXTS,
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 5, 10**30, 1.5e308]),
    st.lists(TEXTS, max_size=2),
    st.dictionaries(TEXTS, TEXTS, max_size=2),
    st.just([[[[[]]]]] * 3),
)
# Keys that Ansible acts on in a result, besides those that modules have.
ACTED_ON = ("ansible_facts", "add_host", "add_group", "unreachable", "failed", "skipped", "rc", "include", "results",
            "include_args", "diff", "warnings", "deprecations", "exception", "invocation", "stdout", "stderr", "msg",
            "ansible_stats", "ansible_job_id", "_ansible_no_log", "_ansible_delegated_vars", "_ansible_notify",
            "_ansible_item_label", "_ansible_facts_cacheable", "__ansible_vault", "__ansible_unsafe",
            "__ansible_type")  # fmt: skip
RAW = st.sampled_from(
    ["", "null", "[]", '"x"', "[" * 5000, '{"a": ' * 3000, "{}", ESCAPES, '{"changed": NaN}', '{"a":1}{"b":2}',
     '{"failed": true, "msg": "' + PIPE + '"}', '{"changed": false, "x": "' + "y" * (5 << 20) + '"}']
)  # fmt: skip


def places(value: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a result."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in pairs for place in ((*above, key), *places(part, (*above, key)))]


@st.composite
def results(draw, module, good):
    """One module's result, spoilt in one to three places, or no result at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(RAW)
    made = good
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["place", "place", "place", "acted", "facts", "name", "report"]))
        # A small result can have lost all of its fields before.
        if kind == "place" and places(made):
            at = draw(st.sampled_from(places(made)))
            made = spoilt(made, at, draw(st.one_of(VALUES, st.just(MISSING))))
        elif kind == "acted":
            made = {**made, draw(st.sampled_from(ACTED_ON)): draw(VALUES)}
        elif kind == "facts":
            made = {**made, "ansible_facts": {**run_this(FOLDER), "host_outcome": draw(VALUES)}}
        elif kind == "name":
            made = {**made, draw(TEXTS): draw(VALUES)}
        elif "report" in made and isinstance(made["report"], str) and made["report"].startswith("{"):
            inner = json.loads(made["report"])
            at = draw(st.sampled_from([place for place in places(inner) if len(place) < 4]))
            made = {**made, "report": json.dumps(spoilt(inner, at, draw(VALUES)))}
    return made


def variants(kind, count, sound):
    """By name of the host, what it returns."""
    modules = ASKED[kind]
    good = honest("x", 0, sound)
    found: dict[str, dict[str, Any]] = {}

    @settings(max_examples=4 * count, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.sampled_from(modules).flatmap(lambda name: st.tuples(st.just(name), results(name, good[name]))))
    def collect(one):
        name, result = one
        if len(found) < count and {name: result} not in found.values() and result != good[name]:
            found[f"evil-{len(found):02}"] = {name: result}

    collect()
    assert len(found) == count
    return found


@pytest.mark.parametrize(("kind", "method"), WAYS)
def test_no_spoilt_result_takes_anything_with_it(tmp_path, kind, method):
    sound = report("good")
    text = json.dumps(variants(kind, COUNTS[kind], sound)).replace(FOLDER, str(tmp_path / "all"))

    held(ran(tmp_path, sound, kind, method, json.loads(text)), kind)
