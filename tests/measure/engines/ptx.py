"""A small interpreter of PTX: the instructions of kernels.ptx, with registers of the declared width, thread by thread.

Anything else raises ValueError: an unknown instruction, a register that is not declared or of another width, memory
outside of what was allocated. Threads run one after the other, so it finds no race. %globaltimer counts instructions.
"""

import operator
import re
from typing import NamedTuple

MASKS = {32: (1 << 32) - 1, 64: (1 << 64) - 1}
SPECIAL = ("%ctaid.x", "%ntid.x", "%tid.x", "%nctaid.x")
SIMPLE = {
    "add.u64": operator.add,
    "sub.u64": operator.sub,
    "mul.lo.u64": operator.mul,
    "rem.u64": operator.mod,
    "xor.b64": operator.xor,
    "shr.u64": operator.rshift,
    "shl.b64": operator.lshift,
    "mad.lo.u64": lambda a, b, c: a * b + c,
}
COMPARE = {"setp.ge.u64": operator.ge, "setp.eq.u64": operator.eq, "setp.lt.u64": operator.lt}
ATOMIC = {"atom.global.add.u64": operator.add, "atom.global.min.u64": min, "atom.global.max.u64": max}
LOADS = ("ld.volatile.global.u64", "ld.volatile.global.v2.u64")
STORES = ("st.global.u64", "st.global.v2.u64")
MOST_STEPS = 1_000_000


class Function(NamedTuple):
    results: list[str]
    parameters: list[str]
    widths: dict[str, int | str]
    code: list[tuple[str | None, str, list[str]]]
    labels: dict[str, int]


def parse(text):
    """The functions of a module by name."""
    text = re.sub(r"//[^\n]*", "", text)
    heads = r"(?:\.visible\s+)?\.(?:func|entry)\s*(?:\(([^)]*)\))?\s*(\w+)\s*\(([^)]*)\)\s*\{(.*?)\n\}"
    return {name: _function(results, parameters, body) for results, name, parameters, body in
            re.findall(heads, text, re.DOTALL)}  # fmt: skip


def _function(results, parameters, body):
    widths, code, labels = {}, [], {}

    def declared(words):
        found = [word.split() for word in words.split(",") if word.strip()]
        widths.update({name: int(kind[2:]) for space, kind, name in found if space == ".reg"})
        return [name for *_, name in found]

    made = Function(declared(results), declared(parameters), widths, code, labels)
    for line in filter(None, map(str.strip, re.split(r";|(?<=:)\n", body))):
        label = re.fullmatch(r"(\w+):", line)
        if label:
            labels[label[1]] = len(code)
            continue
        guard, name, rest = re.fullmatch(r"(?:@(\w+)\s+)?(\S+)\s*(.*)", line, re.DOTALL).groups()
        if name == ".reg":
            kind, names = rest.split(None, 1)
            widths.update({one.strip(): "pred" if kind == ".pred" else int(kind[2:]) for one in names.split(",")})
        else:
            code.append((guard, name, re.findall(r"\([^)]*\)|\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)))
    return made


class Memory:
    """Allocations of 64-bit words by address."""

    def __init__(self):
        self.words, self.next = {}, 0x7F0000000000

    def allocate(self, words):
        address, self.next = self.next, self.next + 8 * len(words) + 4096
        self.words.update(zip(range(address, address + 8 * len(words), 8), words, strict=True))
        return address

    def read(self, address, count):
        return [self.words[address + 8 * place] for place in range(count)]

    def at(self, address, count=1):
        if address % (8 * count) or any(address + 8 * place not in self.words for place in range(count)):
            raise ValueError(f"{address:#x}: misaligned, or not allocated")
        return [address + 8 * place for place in range(count)]


class Run:
    """One launch. blocks, threads: of the grid, of a block."""

    def __init__(self, functions, memory):
        self.functions, self.memory, self.steps = functions, memory, 0

    def launch(self, name, blocks, threads, *arguments):
        for block in range(blocks):
            for thread in range(threads):
                special = dict(zip(SPECIAL, (block, threads, thread, blocks), strict=True))
                self.call(name, special, arguments)

    def call(self, name, special, arguments):
        function = self.functions[name]
        registers = dict(zip(function.parameters, arguments, strict=True))
        place = 0
        while place < len(function.code):
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise ValueError(f"{name}: no end")
            guard, operation, words = function.code[place]
            place += 1
            if guard is not None and not self.value(function, registers, guard, "pred"):
                continue
            if operation == "bra":
                place = function.labels[words[0]]
            elif operation == "ret":
                break
            elif operation == "call":
                out, inner, given = words
                values = [self.value(function, registers, one, 64) for one in names(given)]
                for one, value in zip(names(out), self.call(inner, special, values), strict=True):
                    self.set(function, registers, one, value, 64)
            else:
                self.step(function, registers, special, operation, words)
        return [registers[one] for one in function.results]

    def value(self, function, registers, word, width):
        if re.fullmatch(r"0x[0-9A-Fa-f]+|\d+", word) and width != "pred":
            return int(word, 0)
        if function.widths.get(word) != width:
            raise ValueError(f"{word}: {function.widths.get(word)} bits, not {width}")
        return registers[word]

    def set(self, function, registers, word, value, width):
        if function.widths.get(word) != width:
            raise ValueError(f"{word}: {function.widths.get(word)} bits, not {width}")
        registers[word] = value if width == "pred" else value & MASKS[width]

    def step(self, function, registers, special, operation, words):
        """One instruction that is no branch."""

        def get(word, width=64):
            return self.value(function, registers, word, width)

        narrow = {
            "ld.param.u64": (64, lambda: registers[words[1].strip("[]")]),
            "mov.u32": (32, lambda: special[words[1]]),
            "mov.u64": (64, lambda: {"%globaltimer": self.steps}[words[1]]),
            "cvt.u64.u32": (64, lambda: get(words[1], 32)),
            "mul.wide.u32": (64, lambda: get(words[1], 32) * get(words[2], 32)),
        }
        if operation in narrow:
            width, value = narrow[operation]
            self.set(function, registers, words[0], value(), width)
        elif operation in SIMPLE:
            self.set(function, registers, words[0], SIMPLE[operation](*map(get, words[1:])), 64)
        elif operation in COMPARE:
            self.set(function, registers, words[0], COMPARE[operation](*map(get, words[1:])), "pred")
        else:
            self.touch(function, registers, get, operation, words)

    def touch(self, function, registers, get, operation, words):
        """One instruction that reads or writes memory."""
        place = next((word for word in words if word.startswith("[")), "[0]")
        base, _, offset = place.strip("[]").partition("+")
        values = names(words[operation in STORES])
        found = self.memory.at(get(base) + int(offset or 0), len(values))
        memory = self.memory.words
        if operation in STORES:
            memory.update(zip(found, map(get, values), strict=True))
        elif operation in LOADS:
            for one, at in zip(values, found, strict=True):
                self.set(function, registers, one, memory[at], 64)
        elif operation in ATOMIC:
            before = memory[found[0]]
            memory[found[0]] = ATOMIC[operation](before, get(words[2])) & MASKS[64]
            self.set(function, registers, values[0], before, 64)
        else:
            raise ValueError(f"{operation}: not an instruction of these kernels")


def names(words):
    """The names in ``(a, b)``, ``{a, b}`` or ``a``."""
    return [one.strip() for one in words.strip("(){}").split(",") if one.strip()]
