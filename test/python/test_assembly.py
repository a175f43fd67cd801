# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zpp-opt reads and writes StableHLO as jaxlib does.

jaxlib has the real dialects. Of each module here, the generic form that zpp-opt
makes of jaxlib's text is jaxlib's own, and zpp-opt's pretty form is read by
jaxlib.
"""

import functools
import re
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT
from jax import lax
from jax._src.interpreters.mlir import make_ir_context
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib.mlir import ir
from zpp._compiler import find_compiler

pytestmark = pytest.mark.compiler

TABLE = ROOT / "lib/Dialect/Guest/Assembly/Table.cpp"
FORMS = ROOT / "test/Dialect/Guest/pretty.mlir"

#: Ops of the table that no text here has: they belong to dialects that zpp does
#: not read, or to a version of Shardy that is not that of .venv.
ABSENT = {"stablehlo.uniform_dequantize", "stablehlo.uniform_quantize",
          "sdy.func_data_flow_edge", "sdy.replicated_to_unreduced",
          "sdy.sharded_to_unreduced"}


def zpp_opt(text: str, *flags: str) -> str:
    # jaxlib calls its text "-" in locations.
    done = subprocess.run([find_compiler(), "-", *flags], input=text, text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace('loc("<stdin>":', 'loc("-":').rstrip()


def squeeze(text: str) -> str:
    """The text with single spaces; older versions print two in some places."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def check(text: str) -> None:
    """Compares zpp-opt with jaxlib on this module, in both forms."""
    with make_ir_context():
        module = ir.Module.parse(text)

        def printed(module, is_generic=False, has_locations=False):
            return module.operation.get_asm(
                print_generic_op_form=is_generic,
                enable_debug_info=has_locations).rstrip()

        def again(text, **form):
            return printed(ir.Module.parse(text), **form)

        pretty = printed(module)
        assert again(pretty, is_generic=True) == zpp_opt(
            pretty, "--mlir-print-op-generic")
        generic = printed(module, is_generic=True)
        written, wanted = zpp_opt(generic), again(generic)
        assert again(written) == wanted and squeeze(written) == squeeze(wanted)
        # Aliases of locations that nothing names are zpp-opt's own.
        located = printed(module, has_locations=True)
        assert again(zpp_opt(located, "--mlir-print-debuginfo"),
                     has_locations=True) == again(located, has_locations=True)


def test_every_form():
    """The text has every op of the table that has a pretty form."""
    rows = re.findall(r'^    \{"([\w.-]+)",(.*?)(?=^    [{/]|^};)', TABLE.read_text(),
                      re.MULTILINE | re.DOTALL)
    pretty = {name for name, row in rows
              if not re.search(r'""(,\s+"[\w, ]+")?\},\s*$', row)}
    text = FORMS.read_text()
    names = set(re.findall(r"(?:= |^\s+)((?:stablehlo|chlo|sdy)\.[\w-]+)", text,
                           re.MULTILINE))
    assert len(pretty) > 130
    assert pretty - names - ABSENT == set()
    try:
        with make_ir_context():
            ir.Module.parse(text)
    except ir.MLIRError as error:
        pytest.skip(f"this version of JAX has other ops: {error}")
    check(text)


@pytest.mark.parametrize("path", sorted((ROOT / "test/Inputs").glob("*.mlir")),
                         ids=lambda path: path.stem)
def test_recorded(path):
    check(path.read_text())


def scan(x):
    return lax.scan(lambda c, y: (c + y, c * y), x[0], x)


def while_loop(x):
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2),
                          (0, x))


def sharded(x):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
    spec = P("x", "y")
    x = lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
    return jax.shard_map(
        lambda y: lax.psum_scatter(lax.all_gather(y, "x", tiled=True), "x",
                                   tiled=True), mesh=mesh, in_specs=spec,
        out_specs=spec)(x)


def convolution(x):
    image = x.reshape(1, 4, 4, 4)
    return (lax.conv_general_dilated(image, image, (2, 1), "SAME",
                                     rhs_dilation=(1, 2)),
            lax.conv_transpose(image, image, (2, 2), "VALID"))


def numbers(x):
    return tuple((x.astype(kind) + jnp.ones(8, kind)).astype(jnp.float32)
                 for kind in (jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2,
                              jnp.int4, jnp.uint4, jnp.uint8, jnp.complex64))


#: Functions of an array of 8 x 8.
PROGRAMS = {
    "argmax": lambda x: (jnp.argmax(x, 0), jnp.argmin(x)),
    "cholesky": lambda x: jnp.linalg.cholesky(x),
    "clip": lambda x: jnp.clip(x, 0, 1),
    "complex": lambda x: jnp.abs(jnp.fft.fft(lax.complex(x, x))).real,
    "composite": lambda x: lax.composite(
        lambda y, scale: jnp.sin(y) * scale, "acme.sin", version=2)(x, scale=1.0),
    "cond": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "convolution": convolution,
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "dot": lambda x: jnp.dot(x, x, precision=lax.DotAlgorithmPreset.F32_F32_F32),
    "einsum": lambda x: jnp.einsum("bi,bj->bij", x, x),
    "gather": lambda x: x[jnp.array([1, 2]), :, None],
    "grad": lambda x: jax.grad(lambda y: jnp.sum(jax.nn.softmax(y @ y)))(x),
    "numbers": numbers,
    "pool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 1), "SAME"),
    "random": lambda x: jax.random.normal(jax.random.key(0), x.shape) + x,
    "rng": lambda x: lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), (4,)),
    "scan": scan,
    "scatter": lambda x: x.at[jnp.array([1, 2])].add(1.0, mode="drop"),
    "sharded": sharded,
    "solve": lambda x: jax.scipy.linalg.solve_triangular(x, x),
    "sort": lambda x: (jnp.sort(x), jnp.argsort(x), lax.top_k(x, 2)),
    "special": lambda x: (lax.erf_inv(x), lax.lgamma(x), lax.digamma(x),
                          lax.zeta(x, x), lax.bessel_i1e(x), lax.tan(x),
                          lax.nextafter(x, x), lax.square(x), lax.is_finite(x)),
    "switch": lambda x: lax.switch(2, [jnp.sin, jnp.cos, jnp.tan], x),
    "while": while_loop,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    lowered = jax.jit(PROGRAMS[name]).lower(jnp.ones((8, 8)))
    check(lowered.as_text(debug_info=True))


def test_dynamic():
    """Shapes with symbols."""
    (shape,) = (jax.ShapeDtypeStruct(
        jax.export.symbolic_shape("b, 2*c"), jnp.float32),)
    exported = jax.export.export(jax.jit(
        lambda x: jnp.concatenate([x, jnp.sin(x)]).reshape(-1)[::2]))(shape)
    check(exported.mlir_module())


#: Steps of a random program on arrays of 4 x 4.
STEPS = [
    lambda x, y: x + y, lambda x, y: x @ y, lambda x, y: jnp.where(x > y, x, y),
    lambda x, y: x.T, lambda x, y: jnp.sum(x, 1, keepdims=True) * y,
    lambda x, y: lax.dynamic_slice(jnp.concatenate([x, y], 1), (0, 2), (4, 4)),
    lambda x, y: lax.dynamic_update_slice(x, y[:2], (1, 0)),
    lambda x, y: jnp.pad(x, ((1, 0), (0, 2)))[:4, 2:], lambda x, y: x[::-1, ::-1],
    lambda x, y: jnp.sort(x, 0), lambda x, y: x.at[0].set(y[1]),
    lambda x, y: lax.fori_loop(0, 3, lambda i, z: z + y, x),
    lambda x, y: lax.cond(x[0, 0] > 0, lambda: x, lambda: y * 2),
    lambda x, y: lax.optimization_barrier((x, y))[0],
    lambda x, y: jnp.max(x) - lax.reduce_precision(y, 5, 2),
    lambda x, y: jnp.minimum(x, 2).astype(jnp.bfloat16).astype(jnp.float32),
    lambda x, y: lax.bitcast_convert_type(
        lax.bitcast_convert_type(x, jnp.int32) ^ 3, jnp.float32),
    lambda x, y: lax.dot_general(x.reshape(2, 2, 4), y.reshape(2, 4, 2),
                                 (((2,), (1,)), ((0,), (0,)))).reshape(2, 4)
    .repeat(2, 0),
    lambda x, y: jax.checkpoint(jnp.tanh)(x), lambda x, y: jnp.cumsum(x, 1),
    lambda x, y: jnp.vectorize(lambda z: jnp.exp(z) / 2)(x),
]


@pytest.mark.parametrize("seed", range(6))
def test_random(seed):
    rng = np.random.default_rng(seed)

    def program(x):
        values = [x, x * 2]
        for step in rng.choice(len(STEPS), 24):
            first, second = rng.choice(len(values), 2)
            values.append(STEPS[step](values[first], values[second]))
        return functools.reduce(jnp.add, values)

    lowered = jax.jit(jax.grad(lambda x: program(x).sum()) if seed % 2 else program
                      ).lower(jnp.ones((4, 4)))
    check(lowered.as_text(debug_info=True))
