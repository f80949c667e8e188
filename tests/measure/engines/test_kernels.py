"""The text of kernels.ptx, executed: an error in it is found without a GPU."""

import pytest

from gpucheck.measure.engines.driver.gpu import KERNELS, PTX, THREADS
from gpucheck.measure.engines.pattern import MASK, words_at
from tests.measure.engines.ptx import Memory, Run, parse

TEXT = PTX.read_text()
KEY, CAP = 0xFEDCBA9876543210, 4
SIZES = (0, 1, 27, 1027)
GUARD = 0x5555


class Gpu:
    """Memory with words around it that must stay, and launches."""

    def __init__(self, text=TEXT):
        self.memory, self.functions = Memory(), parse(text)

    def allocate(self, words):
        return self.memory.allocate([GUARD, GUARD, *words, GUARD, GUARD]) + 16

    def launch(self, name, blocks, *arguments, threads=THREADS):
        """Return the instructions that ran."""
        run = Run(self.functions, self.memory)
        run.launch(name, blocks, threads, *arguments)
        return run.steps

    def read(self, address, count):
        """The words, whose surroundings are whole."""
        before, words, after = (
            self.memory.read(a, n) for a, n in ((address - 16, 2), (address, count), (address + 8 * count, 2))
        )
        assert before == after == [GUARD, GUARD]
        return words

    def compared(self, address, words, blocks):
        note = self.allocate([0, MASK, 0, *[0] * 2 * CAP])
        self.launch("compare", blocks, address, KEY, words, note, CAP)
        count, first, last, *found = self.read(note, 3 + 2 * CAP)
        kept = min(count, CAP)
        return (
            count,
            first,
            last,
            sorted(zip(found[: 2 * kept : 2], found[1 : 2 * kept : 2], strict=True)),
            found[2 * kept :],
        )


def test_all_seven_kernels_and_nothing_else_is_there():
    kernels = set(parse(TEXT)) - {"mix", "thread", "threads"}
    assert kernels == {"fill", "poison", "compare", "copy", "chain", "chase", "spin"} == set(KERNELS)


@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("words", SIZES)
def test_fill_poison_and_compare_agree_with_the_pattern(words, blocks):
    gpu = Gpu()
    address = gpu.allocate([0] * words)
    gpu.launch("fill", blocks, address, KEY, words)
    assert gpu.read(address, words) == words_at(KEY, 0, words)
    assert gpu.compared(address, words, blocks) == (0, MASK, 0, [], [0] * 2 * CAP)

    gpu.launch("poison", blocks, address, 0xABCD, words)
    assert gpu.read(address, words) == [0xABCD] * words
    count, first, last, _, _ = gpu.compared(address, words, blocks)
    assert (count, first, last) == ((words, 0, words - 1) if words else (0, MASK, 0))


@pytest.mark.parametrize("flips", [(0,), (26,), (1026,), (3, 255, 256, 700), (0, 1, 2, 3, 4, 5, 1026)])
def test_compare_counts_every_flip_and_keeps_as_many_as_there_is_room_for(flips):
    gpu = Gpu()
    address = gpu.allocate(words_at(KEY, 0, 1027))
    for place in flips:
        gpu.memory.words[address + 8 * place] ^= 1 << 17
    count, first, last, kept, rest = gpu.compared(address, 1027, 3)

    assert (count, first, last) == (len(flips), min(flips), max(flips))
    assert len(kept) == min(len(flips), CAP)
    assert all(gpu.memory.words[address + 8 * place] == got for place, got in kept)
    assert {place for place, _ in kept} <= set(flips)
    assert not any(rest)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("pieces", [0, 1, 13, 513])
def test_copy_moves_pieces_of_sixteen_bytes(pieces, blocks):
    gpu = Gpu()
    source, target = gpu.allocate(words_at(KEY, 0, 2 * pieces)), gpu.allocate([7] * 2 * pieces)
    gpu.launch("copy", blocks, target, source, pieces)

    assert gpu.read(target, 2 * pieces) == gpu.read(source, 2 * pieces) == words_at(KEY, 0, 2 * pieces)


@pytest.mark.parametrize(("links", "stride", "steps"), [(1, 8, 5), (27, 8, 27), (600, 16, 601), (5, 256, 0)])
def test_chase_follows_the_chain_round_and_round(links, stride, steps):
    gpu = Gpu()
    address, out = gpu.allocate([0] * (links * stride // 8)), gpu.allocate([0])
    gpu.launch("chain", 2, address, stride, links)
    gpu.launch("chase", 1, address, steps, out, threads=1)

    assert gpu.read(out, 1) == [address + steps % links * stride]


@pytest.mark.parametrize("ns", [0, 1, 100, 5000])
def test_spin_ends_when_the_time_is_over(ns):
    """The clock of the interpreter counts instructions, so they are the time that has passed."""
    steps = Gpu().launch("spin", 1, ns, threads=1)

    assert ns <= steps <= ns + 10
