"""The same paste says the same, whatever stands around it."""

import codecs
from itertools import product

import pytest
from msgspec.structs import replace

from gpucheck.imports._unwrap import unwrapped
from gpucheck.model.paste import Part
from tests.imports.pastes import reading
from tests.imports.pastes.samples import KERNEL, MATRIX, NAMES_A_HOST, WRAPPERS, samples, table_of
from tests.shared import sampled


def read(data: str | bytes) -> tuple[Part, ...]:
    """The parts, without where they stand."""
    found = reading.read(data)
    assert not found.unread, found.unread
    return tuple(
        replace(part, ranges=(), messages=tuple(replace(message, line=0) for message in part.messages))
        for part in found.parts
    )


@pytest.mark.parametrize(
    ("wrapper", "kind"), sampled(product(WRAPPERS, samples()), lambda number, _: number % 6 == number // 6 % 6)
)
def test_what_stands_around_a_paste_changes_nothing(kind: str, wrapper: str) -> None:
    text = samples()[kind]
    found = read(WRAPPERS[wrapper](text))

    if wrapper in NAMES_A_HOST:
        assert {part.machine for part in found} == {"node07"}
        found = tuple(replace(part, machine=None) for part in found)
    if kind == "kernel-log":
        # What stands before a kernel message may be a time, and is kept as such.
        assert [[line.text for line in log.lines] for part in found if (log := part.facts.kernel_log)] == [
            [line.text for line in log.lines] for part in read(text) if (log := part.facts.kernel_log)
        ]
    else:
        assert found == read(text)


@pytest.mark.parametrize("kind", samples())
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
    ],
    ids=["bom", "utf-16-le", "utf-16-be", "crlf", "cr"],
)
def test_encodings_change_nothing(kind: str, encode) -> None:
    text = samples()[kind]

    assert read(encode(text)) == read(text)


def test_two_layers_come_off() -> None:
    text = WRAPPERS["quote"](WRAPPERS["fence"](WRAPPERS["mpirun"](MATRIX)))

    assert read(text) == read(MATRIX)


def test_a_matrix_as_a_markdown_table_with_bold_cells() -> None:
    assert read(table_of(MATRIX)) == read(MATRIX)


def test_the_streams_of_two_ranks_are_read_apart() -> None:
    text = samples()["nvbandwidth"].splitlines()
    both = "".join(f"[1,0]<stdout>:{line}\n[1,1]<stdout>:{line}\n" for line in text)

    first, second = read(both)
    assert first == second == read(samples()["nvbandwidth"])[0]


def test_nccl_s_own_host_and_process_are_no_launcher_s_prefix() -> None:
    lines = [f"node07:4242:{n} [0] NCCL INFO Channel {n:02d} : 0[0] -> 1[1] via P2P/IPC" for n in range(20)]

    assert unwrapped(lines).text == lines


@pytest.mark.parametrize("name", ["GPU0", "mlx5_0", "CPU0", "local_rank3", "cuda0", "eth1"])
def test_names_of_devices_are_no_hosts(name: str) -> None:
    assert not unwrapped([f"{name}: 12 C"] * 9).hosts


def test_the_number_of_lines_stays() -> None:
    for wrap in WRAPPERS.values():
        lines = wrap(KERNEL).split("\n")
        assert len(unwrapped(lines).text) == len(lines)


def test_a_line_of_noise_is_blank_and_counts() -> None:
    found = reading.read("x" * 100_000 + "\n" + KERNEL)

    assert found.parts[0].ranges[0].first_line == 2
