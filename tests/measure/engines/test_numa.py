"""Host memory is made near the GPU it is for."""

import os

import pytest

from gpucheck.measure.engines.driver.gpu import cpus_of, on_node


@pytest.fixture
def nodes(tmp_path):
    def tell(text):
        (tmp_path / "node1").mkdir()
        (tmp_path / "node1/cpulist").write_text(text)
        return tmp_path

    return tell


@pytest.mark.parametrize(("text", "cpus"), [("0-3\n", {0, 1, 2, 3}), ("1,3-4,9\n", {1, 3, 4, 9}), ("\n", set())])
def test_a_list_of_cpus_is_read_as_the_kernel_writes_it(nodes, text, cpus):
    assert cpus_of(1, nodes(text)) == cpus


def test_a_node_is_where_this_runs_for_a_while(nodes):
    before = os.sched_getaffinity(0)
    one = min(before)

    with on_node(1, nodes(f"{one}\n")):
        assert os.sched_getaffinity(0) == {one}
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("node", [None, 1, 7])
def test_a_node_that_is_unknown_or_not_ours_changes_nothing(nodes, node):
    before = os.sched_getaffinity(0)

    with on_node(node, nodes("4000-4003\n")):
        assert os.sched_getaffinity(0) == before
