"""What a person sees: every host of a few, and a fleet's progress without a line a host."""

import re

import pytest

from tests.playbooks.test_runs import play

pytestmark = pytest.mark.slow

PLAY = """
- name: Work
  hosts: gpu
  connection: local
  gather_facts: false
  tasks:
    - name: Do it
      ansible.builtin.assert: {that: inventory_hostname != 'n3', fail_msg: "n3: no more space"}
    - name: Do more
      ansible.builtin.assert: {that: true, success_msg: said}
    - name: Include more
      ansible.builtin.include_tasks: more.yml
    - name: Do it to many
      ansible.builtin.assert: {that: true, success_msg: said}
      changed_when: true
      loop: [1, 2]
"""


def shown(tmp_path, count, *words, strategy="linear"):
    (tmp_path / "more.yml").write_text(
        "- name: Do what is in a file\n  ansible.builtin.assert: {that: true, success_msg: said}\n"
    )
    plays = PLAY.replace("  tasks:", f"  strategy: {strategy}\n  tasks:")
    done = play(tmp_path, plays, *words, hosts=[f"n{number}" for number in range(1, count + 1)])
    assert done.returncode == 2
    return done.stdout


def test_each_of_a_few_hosts_has_its_line(tmp_path):
    """And a failure its message, without lines of the playbook."""
    text = shown(tmp_path, 4)

    assert set(re.findall(r"^ok: \[(n\d)\]", text, re.MULTILINE)) == {"n1", "n2", "n4"}
    assert "TASK [Do more]" in text
    assert re.search(r"^n2 +: ok=5", text, re.MULTILINE)
    assert "n3: no more space" in text
    assert not re.search(r"Origin:|\[ERROR\]|<<< caused by", text)


def test_the_message_of_a_failure_is_shown_as_it_is(tmp_path):
    """A command in it is for copying."""
    message = f"n1: {'word ' * 30}it's over, run: --limit 'n1,localhost'\n  and then this"
    tasks = [{"ansible.builtin.assert": {"that": "false", "fail_msg": message}}]
    text = play(tmp_path, [{"hosts": "gpu", "gather_facts": False, "tasks": tasks}], hosts=["n1"]).stdout

    assert message.replace("\n", "\n    ") in text
    assert "evaluated_to" not in text


def test_of_a_fleet_only_the_bad_ones_have(tmp_path):
    text = shown(tmp_path, 22)

    assert "failed: [n3] Do it: n3: no more space" in text
    assert not re.search(r"^ok: ", text, re.MULTILINE)
    assert len(text.splitlines()) < 22
    assert "said" not in text


@pytest.mark.more
def test_v_brings_every_line_back(tmp_path):
    assert len(re.findall(r"^ok: \[n\d+\]", shown(tmp_path, 22, "-v"), re.MULTILINE)) == 63


def test_where_hosts_do_not_wait_for_each_other_a_line_names_host_and_step(tmp_path):
    """A heading for nearly every line would be three lines for one."""
    text = shown(tmp_path, 4, strategy="free")
    lines = text.splitlines()

    for host in ("n1", "n2", "n4"):
        said = [line for line in lines if f"[{host}]" in line]
        assert said == [
            f"ok: [{host}] Do it",
            f"ok: [{host}] Do more",
            f"ok: [{host}] Do what is in a file",
            f"changed: [{host}] Do it to many",
        ]
    assert "included:" not in text
    # The one that fails is shown as everywhere, with its step above.
    assert [line for line in lines if line.startswith("TASK [")] == [line for line in lines if "TASK [Do it]" in line]
    assert "n3: no more space" in text


def test_a_message_is_shown_as_text_whatever_the_number_of_hosts(tmp_path):
    plays = (
        "- hosts: gpu\n  gather_facts: false\n  tasks:\n"
        "    - ansible.builtin.debug: {msg: '{{ inventory_hostname }}: a  table\\n  \u2502 of two lines'}\n"
        "      when: inventory_hostname == 'n7'\n".replace("'{{", '"{{').replace("lines'", 'lines"')
    )

    done = play(tmp_path, plays, hosts=[f"n{number}" for number in range(22)])

    assert "\nn7: a  table\n  \u2502 of two lines\n" in done.stdout, done.stdout + done.stderr


def test_a_long_answer_of_a_host_is_cut_in_the_middle(tmp_path):
    plays = """
- name: Work
  hosts: gpu
  connection: local
  gather_facts: false
  tasks:
    - name: Fail
      ansible.builtin.fail: {msg: "begin {{ 'x' * 100000 }} end"}
"""
    short = play(tmp_path, plays, hosts=["n1"]).stdout
    full = play(tmp_path, plays, "-v", hosts=["n1"]).stdout

    assert re.search(r"begin\s+xxx", short)
    assert "characters left out, -v shows them" in short
    assert re.search(r"xxx\s+end", short)
    assert len(short) < 15_000
    assert "x" * 100_000 in full


def test_a_role_that_is_included_has_its_name(tmp_path):
    """The name of such a task is asked for in another way than that of others."""
    (tmp_path / "roles/more/tasks").mkdir(parents=True)
    (tmp_path / "roles/more/tasks/main.yml").write_text("- name: Do it\n  ansible.builtin.assert: {that: true}\n")
    tasks = [{"name": "Include the role", "ansible.builtin.include_role": {"name": "more"}}]
    done = play(tmp_path, [{"hosts": "gpu", "gather_facts": False, "tasks": tasks}], hosts=[f"n{n}" for n in range(30)])

    assert done.returncode == 0
    assert "Callback dispatch" not in done.stdout + done.stderr
