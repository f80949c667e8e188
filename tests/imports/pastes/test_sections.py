"""Which lines belong to which kind, and which to none."""

import pytest

from gpucheck import imports
from gpucheck.model.paste import Reading
from tests.imports.pastes.reading import RAW, read
from tests.imports.pastes.samples import KERNEL, MATRIX, P2P_SAMPLE, samples


def kinds(reading: Reading) -> list[str]:
    return [part.ranges[0].kind for part in reading.parts]


def unread(reading: Reading) -> list[tuple[int, int]]:
    return [(one.first_line, one.last_line) for one in reading.unread]


def test_two_tools_and_prose_between_them() -> None:
    prose = "and when we run the sample\n it fails, see here:"
    text = f"We see this on our new box:\n\n{MATRIX}\n{prose}\n{P2P_SAMPLE}Any idea?\n"
    reading = read(text)

    assert kinds(reading) == ["nvidia-smi-topo", "simple-p2p"]
    assert [(part.ranges[0].first_line, part.ranges[-1].last_line) for part in reading.parts] == [(3, 7), (11, 18)]
    assert unread(reading) == [(1, 1), (9, 10), (19, 19)]
    assert [one.text for one in reading.unread] == [
        "We see this on our new box:",
        "and when we run the sample",
        "Any idea?",
    ]


def test_the_order_of_tools_does_not_matter() -> None:
    texts = samples()
    forth = read("\n".join(texts.values()))
    back = read("\n".join(reversed(texts.values())))

    assert kinds(forth) == list(reversed(kinds(back))) == list(texts)
    assert not forth.unread
    assert not back.unread


def test_kernel_lines_between_the_lines_of_a_tool() -> None:
    kernel = KERNEL.splitlines()
    lines = P2P_SAMPLE.splitlines()
    lines[4:4] = kernel[:2]
    lines[7:7] = kernel[2:]
    reading = read("\n".join(lines))

    # What the sample printed before and after is one block: the lines between are not its own.
    assert set(kinds(reading)) == {"kernel-log", "simple-p2p"}
    assert not reading.unread


def test_one_line_of_a_kind_below_many_of_another_that_hold_its_words() -> None:
    """A log of NCCL names CUDA and NCCL versions too, and the line that matters is the last one."""
    log = [f"ws:42:4{n} [{n}] NCCL INFO cudaDriverVersion 12020" for n in range(8)]
    timeout = (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE) ran for 600450 ms."
    )
    reading = read("\n".join([*log, timeout]))

    assert kinds(reading) == ["nccl-log", "cuda-error"]
    assert not reading.unread


TABLES = ("dcgmi-diag-4-all-pass", "dcgmi-health-healthy", "dcgmi-nvlink-12-links")


@pytest.mark.parametrize("first", TABLES)
@pytest.mark.parametrize("second", [*TABLES, "nvidia-smi-table-cut-err", "nvidia-smi-table-k80-r390"])
def test_a_table_ends_where_that_of_another_tool_begins(first: str, second: str) -> None:
    """Also without a prompt between them: the GPU that is ERR! in the second was lost in a pass of the first."""
    alone, both = read(RAW[second]), read(f"{RAW[first].rstrip()}\n{RAW[second]}")

    assert {*kinds(both)} == {*kinds(read(RAW[first])), *kinds(alone)}
    assert {m.key for part in alone.parts for m in part.messages} <= {
        m.key for part in both.parts for m in part.messages
    }


@pytest.mark.parametrize("kind", ["p2p-bandwidth-latency-test", "nvbandwidth"])
def test_a_run_that_was_repeated_is_two_blocks(kind: str) -> None:
    reading = read(f"$ numactl -N 0 ./tool\n{samples()[kind]}$ numactl -N 1 ./tool\n{samples()[kind]}")

    assert kinds(reading) == [kind, kind]
    assert reading.parts[0].facts == reading.parts[1].facts


def test_a_prompt_is_neither_read_nor_unread() -> None:
    reading = read(f"(base) me@node07:~/x$ nvidia-smi topo -m\n{MATRIX}[root@node07 ~]# dmesg\n{KERNEL}\u276f ls\n")

    assert kinds(reading) == ["nvidia-smi-topo", "kernel-log"]
    assert not reading.unread
    assert {part.machine for part in reading.parts} == {None}


def test_prompts_of_two_hosts_name_the_machine_of_what_follows() -> None:
    reading = read(f"me@node07:~$ nvidia-smi topo -m\n{MATRIX}me@node08.example.com:~$ dmesg\n{KERNEL}")

    assert [part.machine for part in reading.parts] == ["node07", "node08"]


def test_the_prompt_of_a_container_is_no_machine() -> None:
    reading = read(f"me@node07:~$ docker exec -it x bash\nroot@3f2a9c0d1e4b:/# nvidia-smi topo -m\n{MATRIX}")

    assert reading.parts[0].machine is None


def test_logs_of_two_hosts_are_two_parts() -> None:
    first = "".join(f"node07: {line}\n" for line in KERNEL.splitlines())
    reading = read(first + first.replace("node07", "node08"))

    assert [part.machine for part in reading.parts] == ["node07", "node08"]


def test_what_its_own_reader_refuses_is_unread_with_the_reason() -> None:
    damaged = "Unidirectional P2P=Disabled Bandwidth Matrix (GiB/s)\n   D\\D     0      1\n     0 911.08  20.10\n"
    reading = read(f"{MATRIX}\n{damaged}")

    assert kinds(reading) == ["nvidia-smi-topo"]
    assert "GiB/s" in reading.unread[0].why


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(imports.ImportProblem, match="unknown kind"):
        imports.read_all(MATRIX.encode(), "paste.txt", "no-such-kind")
