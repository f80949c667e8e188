"""How RDMA cards reach GPU memory: by peermem with OFED alone, else by DMA-BUF where that can be."""

from hypothesis import given
from hypothesis import strategies as st

from gpucheck.stack import StackSpec
from gpucheck.stack.facts import RdmaFacts
from gpucheck.stack.lock import lock, read_lock, write_lock
from gpucheck.stack.rdma import MODULE, PATH, outcome, rdma_plan
from tests.stack.asked import plan_of
from tests.stack.hosts import host

CARD = RdmaFacts(bus_id="0000:06:00.0", device_id="1021", kind="infiniband")
KERNELS = ("4.18.0-553.el8.x86_64", "5.4.0-216-generic", "5.11.9", "5.12.0", "5.14.0-570.el9", "6.8.0-106-generic")


def planned(hosts, **which):
    return plan_of(StackSpec(), hosts, **which)


def peermem(found):
    """(what the plan writes for it, what it says of RDMA)."""
    contents = [file["content"] for file in found.files if file["path"] == PATH]
    return contents, [reason.because for reason in found.reasons if reason.component == "rdma"]


def test_hosts_of_a_group_may_differ_and_each_has_its_own_plan():
    names = {"a": {"rdma": (CARD,), "ofed": "24.10"}, "b": {"rdma": (CARD,)}, "c": {}}
    hosts = [host("rocky-9", "h100-sxm5-x8", name, **changes) for name, changes in names.items()]

    of_group, said = peermem(planned(hosts, group="rocky-9-x86_64-2330x8"))

    assert of_group == []
    assert sorted(words.partition(":")[0] for words in said) == ["1 of 3 hosts (a)", "1 of 3 hosts (b)"]
    assert peermem(planned(hosts, host="a"))[0] == [f"{MODULE}\n"]
    assert "1 of" not in peermem(planned(hosts, host="b"))[1][0]
    assert peermem(planned(hosts, host="c")) == ([], [])


def test_the_lock_keeps_what_the_plan_needs_and_a_host_without_cards_has_no_line_of_it():
    made = lock(StackSpec(), [host("rocky-9", "t4-x1", "a", rdma=(CARD,), ofed="24.10"), host("rocky-9", "t4-x1", "b")])
    text = write_lock(made)

    assert read_lock(text, "lock") == made
    assert [line.strip() for line in text.splitlines() if "rdma" in line] == ["rdma: ofed"]


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.tuples(st.sampled_from(["none", "inbox", "ofed"]), st.sampled_from(KERNELS)),
        min_size=1,
    ),
    st.sampled_from(["h100-sxm5-x8", "v100-sxm2-x8"]),
)
def test_plan_of_a_group_agrees_with_the_plan_of_each_host(hosts, gpus):
    """No file that a host does not get, and every host with cards is counted once."""
    stack = planned([host("ubuntu-24.04", gpus)], host="node01").stack

    files, reasons = rdma_plan(hosts, stack)

    own = {name: rdma_plan({name: one}, stack) for name, one in hosts.items()}
    assert bool(files) == all(mine for mine, _ in own.values())
    said = {reason.because.partition("): ")[2] or reason.because for reason in reasons}
    assert said == {reason.because for _, mine in own.values() for reason in mine}
    counted = [int(r.because.split(" of ")[0]) if "hosts (" in r.because else len(hosts) for r in reasons]
    assert sum(counted) == sum(rdma != "none" for rdma, _ in hosts.values())


@given(st.sampled_from(KERNELS))
def test_peermem_is_loaded_with_ofed_alone(kernel):
    stack = planned([host("ubuntu-24.04", "h100-sxm5-x8")], host="node01").stack

    found = {rdma: outcome(rdma, kernel, stack) for rdma in ("none", "inbox", "ofed")}

    assert {rdma: one is not None and one.peermem for rdma, one in found.items()} == {
        "none": False,
        "inbox": False,
        "ofed": True,
    }
