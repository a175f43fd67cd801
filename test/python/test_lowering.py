# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""convert-zero-to-stablehlo, executed: XLA computes what BlockQuant.h and
SliceMap.h define, to the bit."""

import itertools
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zpp
from blockquant import MAX_CODE, rotate, rotate_back
from jax.sharding import PartitionSpec as P

pytestmark = pytest.mark.compiler

DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
NAMES[np.dtype(np.int8)] = "i8"


# -----------------------------------------------------------------------------
# Running zero ops
# -----------------------------------------------------------------------------


def type_of(array) -> str:
    shape = "".join(f"{size}x" for size in array.shape)
    return f"tensor<{shape}{NAMES[np.dtype(array.dtype)]}>"


class Program:
    """A function of zero ops, one after the other, and what each returns."""

    def __init__(self):
        self.args, self.lines, self.results = [], [], []

    def add(self, op: str, array: np.ndarray, attributes: str, result):
        """An op on `array` into a tensor like `result`."""
        index = len(self.args)
        into = f"{type_of(array)} into {type_of(result)} -> {type_of(result)}"
        self.lines += [
            f"%e{index} = tensor.empty() : {type_of(result)}",
            f"%r{index} = zero.{op.format(f'%a{index}')} {attributes} "
            f"into %e{index} : {into}"]
        self.args.append(array)
        self.results.append(result)

    def text(self) -> str:
        args = ", ".join(f"%a{index}: {type_of(array)}"
                         for index, array in enumerate(self.args))
        types = ", ".join(map(type_of, self.results))
        values = ", ".join(f"%r{index}" for index in range(len(self.args)))
        body = "\n".join(self.lines)
        return (f"func.func public @main({args}) -> ({types}) {{\n{body}\n"
                f"return {values} : {types}\n}}\n")

    def run(self) -> list[np.ndarray]:
        def signature(*args):
            return tuple(jnp.zeros(result.shape, result.dtype)
                         for result in self.results)

        step = zpp.export(jax.jit(signature, keep_unused=True), *self.args)
        lowered = step.with_text(lower(self.text()))
        return [np.asarray(value) for value in zpp.load(lowered)(*self.args)]


def lower(text: str) -> str:
    process = subprocess.run(
        [zpp.find_compiler(), "-", "--convert-zero-to-stablehlo"],
        input=text, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def like(shape, dtype) -> np.ndarray:
    """A placeholder for a result."""
    return np.broadcast_to(np.zeros((), dtype), shape)


def assert_same_bits(got: np.ndarray, expected: np.ndarray, what=""):
    """Equal bit patterns; all NaNs are one."""
    assert got.dtype == expected.dtype and got.shape == expected.shape, what
    if got.dtype != np.int8:
        unsigned = np.dtype(f"u{got.dtype.itemsize}")
        nan = np.isnan(expected.astype(np.float32))
        np.testing.assert_array_equal(
            np.isnan(got.astype(np.float32)), nan, str(what))
        got = np.where(nan, 0, got.view(unsigned))
        expected = np.where(nan, 0, expected.view(unsigned))
    np.testing.assert_array_equal(got, expected, str(what))


# -----------------------------------------------------------------------------
# BlockQuant.h in numpy
# -----------------------------------------------------------------------------


def layout(elements: int, form: str, block: int):
    """(blocks, payload bytes, offset of the scales, bytes of a chunk)."""
    def align(size):
        return -(-size // 16) * 16

    blocks = -(-elements // block)
    payload = elements if form == "i8" else -(-elements // 2)
    return (blocks, payload, align(payload),
            align(align(payload) + 2 * blocks))


def quantize(values: np.ndarray, form: str, block: int) -> np.ndarray:
    """The wire chunk of flat `values`."""
    values = values.astype(np.float32)
    blocks, payload, offset, size = layout(values.size, form, block)
    chunk = np.zeros(size, np.uint8)
    codes = np.zeros(values.size + 1, np.int32)
    scales = np.zeros(blocks, np.uint16)
    with np.errstate(all="ignore"):
        for index in range(blocks):
            part = slice(index * block, min(index * block + block, values.size))
            magnitude = values[part].view(np.uint32) & np.uint32(0x7FFFFFFF)
            magnitude = np.where(magnitude < 0x00800000, 0, magnitude)
            amax = magnitude.max().astype(np.uint32)
            if amax == 0:
                continue
            if amax >= 0x7F800000:
                scales[index] = 0x7FC0
                continue
            exact = amax.view(np.float32) / np.float32(MAX_CODE[form])
            scales[index] = max(0x80, (int(exact.view(np.uint32)) + 0xFFFF)
                                >> 16)
            scale = (scales[index].astype(np.uint32) << np.uint32(16)).view(
                np.float32)
            scaled = values[part] * (np.float32(1) / scale)
            codes[part] = np.where(magnitude == 0, 0, np.rint(scaled))
    if form == "i8":
        chunk[:payload] = codes[:-1].astype(np.int8).view(np.uint8)
    else:
        nibbles = (codes[:2 * payload] & 0xF).astype(np.uint8)
        chunk[:payload] = nibbles[0::2] | nibbles[1::2] << 4
    chunk[offset:offset + 2 * blocks] = scales.view(np.uint8)
    return chunk.view(np.int8)


def dequantize(chunk: np.ndarray, elements: int, form: str,
               block: int) -> np.ndarray:
    """The f32 values of a wire chunk."""
    blocks, payload, offset, _ = layout(elements, form, block)
    if form == "i8":
        codes = chunk[:payload].astype(np.int32)
    else:
        nibbles = chunk[:payload].view(np.uint8)
        codes = np.stack([nibbles & 0xF, nibbles >> 4], 1).reshape(-1)
        codes = (codes.astype(np.int32) ^ 8)[:elements] - 8
    scales = chunk[offset:offset + 2 * blocks].copy().view(jnp.bfloat16)
    scales = np.repeat(scales.astype(np.float32), block)[:elements]
    return codes.astype(np.float32) * scales


def reduce(values: np.ndarray, kind: str) -> np.ndarray:
    """Over the leading dim, in order and in f32."""
    total = values[0].astype(np.float32)
    with np.errstate(all="ignore"):
        for value in values[1:]:
            total = total + value.astype(np.float32)
        if kind == "mean":
            total = total / np.float32(len(values))
    return total


def difficult(count: int, dtype, seed: int) -> np.ndarray:
    """Values of all magnitudes: normal, tiny, subnormal, huge, in blocks of
    their own and together; zeros, NaN and infinities here and there."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(count).astype(np.float32)
    runs = np.arange(count) // 37 % 11
    with np.errstate(all="ignore"):
        for run, factor in enumerate([1, 1e-9, 1e-38, 1e-40, 1e37, 0, 1e4,
                                      2.0**-126, 2.0**-24]):
            values[runs == run] *= np.float32(factor)
        # Halves between two codes, and multiples of the largest code.
        values[runs == 9] = random.integers(-254, 255, (runs == 9).sum()) / 2
        values[runs == 10] = 127 * 2.0 ** random.integers(
            -20, 20, (runs == 10).sum())
        for index in random.integers(0, count, count // 997):
            values[index] = random.choice([np.nan, np.inf, -np.inf])
        return values.astype(dtype)


# -----------------------------------------------------------------------------
# Quantization
# -----------------------------------------------------------------------------

LENGTHS = {32: (1, 31, 33, 1024, 3001), 128: (15, 384, 1001), 2048: (5, 4099)}
FORMS = ("i8", "i4")


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DTYPES)
def test_quantize_and_dequantize(name, form):
    dtype = DTYPES[name]
    there, back, sent, received = Program(), Program(), [], []
    for seed, (block, length) in enumerate(
            (block, length) for block in LENGTHS for length in LENGTHS[block]):
        values = difficult(3 * length, dtype, seed).reshape(3, length)
        chunks = np.stack([quantize(row, form, block) for row in values])
        there.add("quantize {}", values, f"quant <{form}, block = {block}>",
                  chunks)
        sent.append((chunks, (block, length)))
        with np.errstate(all="ignore"):
            decoded = np.stack([dequantize(row, length, form, block)
                                for row in chunks]).astype(dtype)
        back.add("dequantize {}", chunks, f"quant <{form}, block = {block}>",
                 decoded)
        received.append((decoded, (block, length)))
    for got, (expected, what) in zip(there.run(), sent):
        assert_same_bits(got, expected, what)
    for got, (expected, what) in zip(back.run(), received):
        assert_same_bits(got, expected, what)


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DTYPES)
def test_rotated_blocks(name, form):
    """Rotation before quantization, after dequantization and after a sum."""
    dtype = DTYPES[name]
    program, expected = Program(), []

    def add(op, values, result):
        program.add(f"{op} {{}}", values,
                    f"quant <{form}, block = {block}, rotate = 32>", result)
        expected.append((result, (op, block, length)))

    for seed, (block, length) in enumerate(
            (block, length) for block in LENGTHS for length in LENGTHS[block]):
        values = difficult(3 * length, dtype, seed).reshape(3, length)
        with np.errstate(all="ignore"):
            chunks = np.stack([
                quantize(rotate(row.astype(np.float32)), form, block)
                for row in values])
            rows = np.stack([dequantize(row, length, form, block)
                             for row in chunks])
            add("quantize", values, chunks)
            add("dequantize", chunks, np.stack(
                [rotate_back(row) for row in rows]).astype(dtype))
            for kind in ("sum", "mean"):
                add(f"dequantize_reduce {kind}", chunks,
                    rotate_back(reduce(rows, kind)).astype(dtype))
    for got, (result, what) in zip(program.run(), expected):
        assert_same_bits(got, result, what)


@pytest.mark.parametrize("form", FORMS)
def test_quantize_every_exponent(form):
    """One block for each of many largest values, all codes in it."""
    random = np.random.default_rng(7)
    amax = np.concatenate([
        random.integers(0x00800000, 0x7F800000, 20000),
        # Values at which scale * qmax is amax, one above and one below.
        (np.float32(MAX_CODE[form])
         * (random.integers(0x80, 0x7B00, 5000) << 16).astype(np.uint32)
         .view(np.float32)).view(np.uint32)[:, None].astype(np.int64).repeat(
             3, 1).reshape(-1) + np.tile([-1, 0, 1], 5000)])
    amax = amax.clip(0x00800000, 0x7F7FFFFF).astype(np.uint32).view(np.float32)
    values = amax[:, None] * np.linspace(-1, 1, 32, dtype=np.float32)
    values[:, 0] = amax
    expected = quantize(values.reshape(-1), form, 32)
    program = Program()
    program.add("quantize {}", values.reshape(1, -1),
                f"quant <{form}, block = 32>", expected[None])
    assert_same_bits(program.run()[0], expected[None])


@pytest.mark.parametrize("form", FORMS)
def test_quantize_halfway_values(form):
    """Halfway between two codes the last bit of a scale's inverse decides; one
    block for each significand that a scale can have."""
    qmax = MAX_CODE[form]
    scales = [(exponent << 7 | significand) << 16
              for exponent in (1, 2, 60, 127, 200, 245)
              for significand in range(128)]
    scales = np.array(scales, np.uint32).view(np.float32)
    halves = np.arange(qmax, dtype=np.float32) + np.float32(0.5)
    steps = np.concatenate([[qmax], halves, -halves]).astype(np.float32)
    steps = np.pad(steps, (0, -steps.size % 256))
    values = (scales[:, None] * steps).reshape(-1)
    expected = quantize(values, form, 256)
    program = Program()
    program.add("quantize {}", values.reshape(1, -1),
                f"quant <{form}, block = 256>", expected[None])
    assert_same_bits(program.run()[0], expected[None])


@pytest.mark.parametrize("form", FORMS)
def test_dequantize_any_bytes(form):
    """Whatever arrives: every code, -8 and -128 too, and every kind of scale."""
    random = np.random.default_rng(3)
    program, expected = Program(), []
    for block, elements in ((32, 97), (128, 513)):
        size = layout(elements, form, block)[3]
        chunks = random.integers(-128, 128, (4, size)).astype(np.int8)
        with np.errstate(all="ignore"):
            values = np.stack([dequantize(chunk, elements, form, block)
                               for chunk in chunks])
        # Subnormal scales are no scales, and devices differ in them.
        values = np.where(np.abs(values) < 2.0**-100, 0, values)
        program.add("dequantize {}", chunks, f"quant <{form}, block = {block}>",
                    values.astype(np.float32))
        expected.append(values.astype(np.float32))
    for got, value in zip(program.run(), expected):
        got = np.where(np.abs(got) < 2.0**-100, np.float32(0), got)
        assert_same_bits(got + np.float32(0), value + np.float32(0))


def test_empty_tensors():
    program = Program()
    program.add("quantize {}", like((2, 0), np.float32), "quant <i8, block = 32>",
                like((2, 0), np.int8))
    program.add("reduce sum {}", like((3, 0, 4), np.float32), "",
                like((0, 4), np.float32))
    for got, result in zip(program.run(), program.results):
        assert_same_bits(got, result)


# -----------------------------------------------------------------------------
# Reduction
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ("sum", "mean"))
def test_reduce(kind):
    program, expected = Program(), []
    for seed, (sources, source, target) in enumerate(itertools.product(
            (1, 2, 3, 4, 7, 17), DTYPES, DTYPES)):
        values = np.random.default_rng(seed).standard_normal(
            (sources, 5, 41)).astype(DTYPES[source])
        with np.errstate(all="ignore"):
            result = reduce(values, kind).astype(DTYPES[target])
        program.add(f"reduce {kind} {{}}", values, "", result)
        expected.append((result, (sources, source, target)))
    for got, (result, what) in zip(program.run(), expected):
        assert_same_bits(got, result, what)


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ("sum", "mean"))
def test_fused_ops(kind, form):
    """Fused ops give the bits of their parts, rounding in between included."""
    block, shape = 64, (6, 10, 7)
    program, expected = Program(), []
    for seed, (sources, name) in enumerate(itertools.product((2, 3), DTYPES)):
        dtype = DTYPES[name]
        chunks = np.stack([
            quantize(difficult(420, np.float32, 50 * seed + source), form,
                     block) for source in range(sources)])
        with np.errstate(all="ignore"):
            partial = reduce(np.stack([dequantize(chunk, 420, form, block)
                                       for chunk in chunks]), kind)
            partial = partial.reshape(shape).astype(dtype)
        program.add(f"dequantize_reduce {kind} {{}}", chunks,
                    f"quant <{form}, block = {block}>", partial)
        expected.append(partial)
        # Dim 1 as [2 factors, 5 rows]: a chunk is one factor.
        packed = np.moveaxis(partial.reshape(6, 2, 5, 7), 1, 0).reshape(2, -1)
        requantized = np.stack([quantize(row, "i4", 32) for row in packed])
        program.add(
            f"dequantize_reduce_quantize {kind} {{}}", chunks,
            f"quant <{form}, block = {block}> partial {type_of(partial)} to "
            "<i4, block = 32> slices <dim = 1, factors = [2], chunk = [0]>",
            requantized)
        expected.append(requantized)
    for got, result in zip(program.run(), expected):
        assert_same_bits(got, result)


# -----------------------------------------------------------------------------
# Slices
# -----------------------------------------------------------------------------

# (shape, dim, factors, chunk)
SLICES = [
    ((8, 3), 0, (2, 4), (1,)),
    ((8, 3), 0, (2, 4), (0,)),
    ((8, 3), 0, (2, 4), (0, 1)),
    ((8, 3), 0, (2, 4), (1, 0)),
    ((7,), 0, (2, 4), (1,)),
    ((5,), 0, (8,), (0,)),
    ((3, 10, 2), 1, (2, 3), (1,)),
    ((3, 2, 13), 2, (3,), (0,)),
    ((2, 23, 1, 3), 1, (2, 3, 2), (2, 0)),
    ((4, 6), 1, (1, 3, 1), (0, 2)),
    ((4, 6), 1, (), ()),
]


def pack(tensor, dim, factors, chunk, stage=0, stages=1):
    """The chunk form, by index arithmetic on the definition in SliceMap.h."""
    extent = tensor.shape[dim]
    slices = int(np.prod(factors, dtype=int))
    unit = -(-extent // slices)
    per_stage = -(-unit // stages)
    part = range(min(unit, stage * per_stage),
                 min(unit, (stage + 1) * per_stage))
    others = [index for index in range(len(factors)) if index not in chunk]
    chunks = []
    for chosen in np.ndindex(*[factors[index] for index in chunk]):
        rows = []
        for rest in np.ndindex(*[factors[index] for index in others]):
            digits = dict(zip(chunk, chosen)) | dict(zip(others, rest))
            number = 0
            for index, factor in enumerate(factors):
                number = number * factor + digits[index]
            rows += [number * unit + row for row in part]
        padded = np.pad(tensor, [(0, slices * unit - extent if axis == dim
                                  else 0) for axis in range(tensor.ndim)])
        chunks.append(np.take(padded, np.array(rows, int), dim))
    return np.stack(chunks)


def slices_attribute(dim, factors, chunk, stage=0, stages=1) -> str:
    text = (f"slices <dim = {dim}, factors = {list(factors)}, "
            f"chunk = {list(chunk)}")
    return text + (f", stage = {stage} of {stages}>" if stages > 1 else ">")


def test_pack_and_unpack_slices():
    program, expected = Program(), []
    for shape, *slices in SLICES:
        tensor = np.arange(1, np.prod(shape) + 1).reshape(shape).astype(
            np.float32)
        for stages in (1, 2, 3):
            for stage in range(stages):
                packed = pack(tensor, *slices, stage, stages)
                program.add("pack_slices {}", tensor,
                            slices_attribute(*slices, stage, stages), packed)
                expected.append((packed, (shape, slices, stage, stages)))
        program.add("unpack_slices {}", pack(tensor, *slices),
                    slices_attribute(*slices), tensor)
        expected.append((tensor, (shape, slices)))
    for got, (result, what) in zip(program.run(), expected):
        assert_same_bits(got, result, what)


@pytest.mark.parametrize("form", FORMS)
def test_quantize_slices(form):
    program, expected = Program(), []
    for seed, (shape, *slices) in enumerate(SLICES):
        tensor = difficult(int(np.prod(shape)), jnp.bfloat16, seed).reshape(
            shape)
        rows = pack(tensor, *slices)
        chunks = np.stack([quantize(row.reshape(-1), form, 32)
                           for row in rows])
        attributes = (f"quant <{form}, block = 32> "
                      + slices_attribute(*slices))
        program.add("quantize {}", tensor, attributes, chunks)
        expected.append(chunks)
        # Integers are their own codes, so that placement alone counts.
        tensor = (np.arange(np.prod(shape)) % 15 - 7).reshape(shape).astype(
            jnp.bfloat16)
        rows = pack(tensor, *slices)
        chunks = np.stack([quantize(row.reshape(-1), form, 32)
                           for row in rows])
        program.add("dequantize {}", chunks, attributes, np.asarray(
            unpack(np.stack([dequantize(chunk, row.size, form, 32).reshape(
                row.shape) for chunk, row in zip(chunks, rows)]),
                   shape, *slices)).astype(jnp.bfloat16))
        expected.append(program.results[-1])
    for got, result in zip(program.run(), expected):
        assert_same_bits(got, result)


def unpack(chunks, shape, *slices):
    """The inverse of `pack`: asks it where every element went."""
    where = pack(np.arange(1, np.prod(shape) + 1).reshape(shape), *slices)
    tensor = np.zeros(int(np.prod(shape)) + 1, chunks.dtype)
    tensor[where.reshape(-1)] = chunks.reshape(-1)
    return tensor[1:].reshape(shape)


# -----------------------------------------------------------------------------
# Collectives
# -----------------------------------------------------------------------------

COLLECTIVES = """
#mesh = #zero.mesh<"node" = 2, "gpu" = 4>
"builtin.module"() <{{sym_name = "jit_f"}}> ({{
  "sdy.mesh"() <{{mesh = #sdy.mesh<["node"=2, "gpu"=4]>, sym_name = "mesh"}}>
      : () -> ()
  func.func public @main(%arg0: tensor<64x3xi8>) -> ({types}) {{
    %0:{count} = "sdy.manual_computation"(%arg0) <{{
        in_shardings = #sdy.sharding_per_value<[<@mesh, [{{"node", "gpu"}}, {{}}]>]>,
        manual_axes = #sdy<manual_axes{{"node", "gpu"}}>,
        out_shardings = #sdy.sharding_per_value<[{shardings}]>}}> ({{
    ^bb0(%x: tensor<8x3xi8>):
{body}
      "sdy.return"({values}) : ({locals}) -> ()
    }}) : (tensor<64x3xi8>) -> ({types})
    return {results} : {types}
  }}
}}) {{mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32}} : () -> ()
"""

# Axes, and the groups that they are.
GROUPS = {
    '["gpu"]': [[0, 1, 2, 3], [4, 5, 6, 7]],
    '["node"]': [[0, 4], [1, 5], [2, 6], [3, 7]],
    '["node", "gpu"]': [list(range(8))],
    '["gpu", "node"]': [[0, 4, 1, 5, 2, 6, 3, 7]],
    '["gpu":(1)2]': [[0, 2], [1, 3], [4, 6], [5, 7]],
    '["gpu":(2)2]': [[0, 1], [2, 3], [4, 5], [6, 7]],
}


def test_collectives():
    """Groups and the order in them, on eight devices."""
    body, types, local_types, values, expected = [], [], [], [], []
    x = np.arange(64 * 3).astype(np.int8).reshape(64, 3)
    shards = x.reshape(8, 8, 3)
    for index, (along, groups) in enumerate(GROUPS.items()):
        size = len(groups[0])
        chunk = f"tensor<{size}x{8 // size}x3xi8>"
        stack = f"tensor<{size}x8x3xi8>"
        body += [
            f'%c{index} = "stablehlo.reshape"(%x) : (tensor<8x3xi8>) -> {chunk}',
            f"%e{index} = tensor.empty() : {chunk}",
            f"%a{index} = zero.all_to_all %c{index} along {along} on #mesh into "
            f"%e{index} : {chunk} into {chunk} -> {chunk}",
            f"%f{index} = tensor.empty() : {stack}",
            f"%g{index} = zero.all_gather_chunks %x along {along} on #mesh into "
            f"%f{index} : tensor<8x3xi8> into {stack} -> {stack}"]
        values += [f"%a{index}", f"%g{index}"]
        local_types += [chunk, stack]
        types += [f"tensor<{8 * size}x{8 // size}x3xi8>",
                  f"tensor<{8 * size}x8x3xi8>"]
        exchanged, gathered = np.zeros_like(shards), [None] * 8
        for group in groups:
            for position, device in enumerate(group):
                exchanged[device] = np.concatenate(
                    [np.split(shards[peer], size)[position] for peer in group])
                gathered[device] = shards[group]
        expected += [exchanged.reshape(8 * size, 8 // size, 3),
                     np.concatenate(gathered)]
    text = COLLECTIVES.format(
        body="\n".join(body), count=len(values), types=", ".join(types),
        locals=", ".join(local_types), values=", ".join(values),
        results=", ".join(f"%0#{index}" for index in range(len(values))),
        shardings=", ".join(['<@mesh, [{"node", "gpu"}, {}, {}]>']
                            * len(values)))

    mesh = jax.make_mesh((2, 4), ("node", "gpu"), axis_types=(
        jax.sharding.AxisType.Auto,) * 2)

    def signature(local):
        return tuple(jnp.zeros((result.shape[0] // 8, *result.shape[1:]),
                               jnp.int8) + local[0, 0] for result in expected)

    spec = P(("node", "gpu"))
    mapped = jax.jit(jax.shard_map(signature, mesh=mesh, in_specs=spec,
                                   out_specs=spec))
    x = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
    step = zpp.export(mapped, x).with_text(lower(text))
    for got, result in zip(zpp.load(step)(x), expected):
        np.testing.assert_array_equal(np.asarray(got), result)
