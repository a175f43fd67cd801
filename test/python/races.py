# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races between compute and transfers in a step as XLA has compiled it for GPUs.

From a start to its wait, a transfer reads its inputs and writes its results and its
workspace, while XLA computes. XLA knows none of that but the operands of the two
calls. Here the places that it gave to all values say whether anything else has
touched that memory in between: no run can show that nothing ever does.
"""

import collections
import dataclasses
import re

import hlo

INSTRUCTION = re.compile(r"(?:ROOT )?%?([\w.-]+) = (.*)")
VALUE = re.compile(
    r" value: <\d+ ([\w.-]+)(?:\{([\d,]*)\})? @\d+> \(size=(\d+),offset=(\d+)\)")
CALLED = re.compile(
    r"(?:condition|body|to_apply|true_computation|false_computation)=%?([\w.-]+)")
#: Ops that compute nothing: their values are those of others.
NAMES = {"get-tuple-element", "tuple", "bitcast", "parameter", "constant",
         "optimization-barrier"}
#: A loop is followed so often: what begins in one iteration may end in the next.
ITERATIONS = 2


@dataclasses.dataclass(frozen=True)
class Place:
    """Bytes of one of XLA's allocations."""

    allocation: int
    offset: int
    size: int

    def overlaps(self, other: "Place") -> bool:
        return (self.allocation == other.allocation
                and self.offset < other.offset + other.size
                and other.offset < self.offset + self.size)


@dataclasses.dataclass
class Instruction:
    name: str
    op: str
    operands: list[str]
    attributes: str

    def number(self, name: str) -> int:
        """A number of a call's configuration, 0 if it has none of that name."""
        match = re.search(rf"\b{name} = (\d+)", self.attributes)
        return int(match[1]) if match else 0

    def overwritten(self) -> set[int]:
        """The operands in whose memory results are."""
        return set(map(int, re.findall(r"\{\d*\}: \((\d+), ", self.attributes)))


@dataclasses.dataclass
class Transfer:
    """One that has begun and has not been waited for."""

    name: str
    #: Operands that it only reads; and results and workspace. Its wait has both.
    reads: list[Place | None]
    writes: list[Place | None]

    @property
    def memory(self) -> list[Place | None]:
        return self.reads + self.writes


def _closing(text: str) -> int:
    """The index of the bracket that closes the one at the beginning of the text."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character in "({[") - (character in ")}]")
        if depth == 0:
            return index
    raise ValueError(f"expected a closing bracket, but got '{text[:80]}'")


def parse(line: str) -> Instruction | None:
    match = INSTRUCTION.match(line)
    if match is None:
        return None
    rest = match[2]
    rest = (rest[_closing(rest) + 1:] if rest.startswith("(") else
            rest[rest.index(" "):]).strip()
    op, _, rest = rest.partition("(")
    end = _closing("(" + rest) - 1
    inside = re.sub(r"/\*.*?\*/", "", rest[:end])
    return Instruction(match[1], op, [
        # With a type before it, if the printer wrote one.
        operand.split()[-1].lstrip("%") for operand in re.split(
            r",\s*(?![^\[{(]*[\]})])", inside) if operand.strip()], rest[end + 1:])


class _Module:
    """A scheduled module and the places of its values."""

    def __init__(self, text: str, assignment: str):
        self.parts = {
            name: {parsed.name: parsed for parsed in map(parse, lines) if parsed}
            for name, lines in hlo.computations(text).items()}
        self.entry = hlo.entry(text)
        self.places: dict[str, dict[str, Place]] = collections.defaultdict(dict)
        allocation = -1
        for line in assignment.splitlines():
            if line.startswith("allocation "):
                allocation = int(line.split()[1].rstrip(":"))
            elif match := VALUE.match(line):
                self.places[match[1]][match[2] or ""] = Place(
                    allocation, int(match[4]), int(match[3]))
        #: The value that the parameter of a loop's body or condition is at first.
        self.given: dict[str, tuple[str, str]] = {}

    def place(self, part: str, value: str) -> Place | None:
        """The place of "name" or "name#index", seen from a computation."""
        name, _, index = value.partition("#")
        while True:
            if (found := self.places.get(name, {}).get(index)) is not None:
                return found
            made = self.parts[part].get(name)
            if made is None or made.op == "call":
                return None
            if made.op == "parameter":
                if part not in self.given:
                    return None
                part, value = self.given[part]
            elif made.op == "tuple":
                if not index:
                    return None
                first, _, rest = index.partition(",")
                value, index = made.operands[int(first)], rest
            elif made.op == "get-tuple-element":
                value = made.operands[0]
                own = re.search(r"index=(\d+)", made.attributes)[1]
                index = f"{own},{index}" if index else own
            elif made.op in ("bitcast", "while", "optimization-barrier"):
                value = made.operands[0]
            elif made.op == "async-start" and index.startswith("1"):
                # The result of the computation that it runs.
                part = re.search(r"calls=%?([\w.-]+)", made.attributes)[1]
                value, index = next(reversed(self.parts[part])), index[2:]
            elif made.op.endswith("-done"):
                # A collective of XLA's, whose start has operands and results, but
                # for those in which both are of one type.
                value = made.operands[0]
                if made.op != "all-reduce-done":
                    index = f"1,{index}" if index else "1"
            else:
                return None
            name, _, outer = value.partition("#")
            index = ",".join(filter(None, (outer, index)))


def races(text: str, assignment: str) -> tuple[list[str], int]:
    """Finds what touches memory of a transfer before it is waited for; returns that and
    how many transfers were followed. `text` is a module that XLA has optimized for
    GPUs, and `assignment` where its values are, as XLA dumps that."""
    module = _Module(text, assignment)
    found: dict[str, None] = {}
    active: dict[str, list[Transfer]] = collections.defaultdict(list)
    followed = 0

    def check(name: str, reads, writes):
        """Memory that an instruction reads and writes now."""
        for transfer in (each for queue in active.values() for each in queue):
            for place in filter(None, transfer.writes):
                if any(read and read.overlaps(place) for read in reads):
                    found[f"{name} reads what {transfer.name} has not written"] = None
            for place in filter(None, transfer.memory):
                if any(write and write.overlaps(place) for write in writes):
                    found[f"{name} writes over memory of {transfer.name}"] = None

    def start(part: str, call: Instruction):
        count = call.number("inputs")
        results = call.number("outputs") + call.number("workspace")
        overwritten = call.overwritten()
        transfer = Transfer(
            call.name, [module.place(part, value) for index, value in enumerate(
                call.operands[:count]) if index not in overwritten],
            [module.places[call.name].get(str(index)) for index in range(results)])
        if None in transfer.memory:
            found[f"{call.name} has operands or results of unknown place"] = None
        check(call.name, transfer.reads, transfer.writes)
        active[hlo.FUNCTION.search(call.attributes)[1]].append(transfer)

    def wait(part: str, call: Instruction):
        nonlocal followed
        queue = active[hlo.FUNCTION.search(call.attributes)[1]]
        places = [module.place(part, value) for value in call.operands]
        # Several transfers of one function may be on their way.
        transfer = next((each for each in queue if places[:len(each.memory)]
                         == each.memory), None)
        if transfer is None:
            found[f"{call.name} waits for memory in which nothing has begun"] = None
            return
        queue.remove(transfer)
        followed += 1

    def visit(part: str):
        for each in module.parts.get(part, {}).values():
            if match := hlo.CALL.search(each.attributes):
                (start if match[1] == "start" else wait)(part, each)
            elif each.op in ("while", "call", "conditional"):
                called = CALLED.findall(each.attributes)
                if each.op == "while":
                    module.given |= dict.fromkeys(called, (part, each.operands[0]))
                for _ in range(ITERATIONS if each.op == "while" else 1):
                    for name in called:
                        visit(name)
            elif each.op not in NAMES:
                check(each.name, [module.place(part, value) for value in each.operands],
                      list(module.places.get(each.name, {}).values()))

    visit(module.entry)
    found |= dict.fromkeys(f"{transfer.name} is never waited for"
                           for queue in active.values() for transfer in queue)
    return list(found), followed
