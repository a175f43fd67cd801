# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zpp.jit as a replacement of jax.jit, and the compiler's errors."""

import functools
import logging
import warnings

import gpt
import jax
import numpy as np
import pytest
import zpp
from jax.sharding import NamedSharding, PartitionSpec
from training import ALL_ON, AXES, BATCH, MESH, NODES, OFF, TINY
from training import recorded_compilations, same_bits, tokens, trainer_of
from training import with_options

pytestmark = [pytest.mark.compiler,
              pytest.mark.filterwarnings("ignore:expected a step with")]


def scale(array, factor, *, shift=1.0):
    return {"result": array * factor + shift}


def test_static_arguments():
    array = np.arange(4, dtype=np.float32)
    for options, args, kwargs in (
            ({"static_argnums": 1}, (array, 2), {}),
            ({"static_argnums": (1,)}, (array,), {"factor": 2}),
            ({"static_argnames": "factor"}, (array, 2), {}),
            ({"static_argnames": ("factor", "shift")}, (array, 2),
             {"shift": 1.0}),
    ):
        fast = zpp.jit(scale, mesh="node:1", **options)
        np.testing.assert_array_equal(fast(*args, **kwargs)["result"],
                                      2 * array + 1)


def test_static_arguments_of_an_inner_jit():
    """They need not be named again; where JAX does not tell, an error says
    so."""
    inner = jax.jit(scale, static_argnums=1)
    assert zpp.jit(inner, mesh="node:1")(1.0, 2)["result"] == 3
    fast = zpp.jit(inner, mesh="node:1")
    fast(1.0, 2)
    fast._latest._static_numbers = fast._latest._static_names = ()
    with pytest.raises(TypeError, match="name static arguments in zpp.jit"):
        fast(1.0, 2)


def test_a_wrapper_of_a_step_that_is_jitted():
    """It is like jax.jit's, but tells of no static arguments."""
    class Logged:
        def __init__(self, step):
            self.__name__ = "logged"
            self.trace, self.lower, self.eval_shape = step.trace, step.lower, step.eval_shape
            self._step = step

        def __call__(self, *args):
            return self._step(*args)

    assert zpp.jit(Logged(jax.jit(scale)), mesh="node:1")(1.0, 2.0)["result"] == 3


def test_options_of_a_step_that_is_jitted_already():
    """Those that zpp needs too may be named again; the others are its own."""
    array = jax.numpy.arange(4.0)
    jitted = jax.jit(lambda x, factor: x * factor, donate_argnums=0,
                     static_argnums=1)
    fast = zpp.jit(jitted, mesh="node:1", static_argnums=1)
    np.testing.assert_array_equal(fast(array, 2), [0, 2, 4, 6])
    assert array.is_deleted()
    with pytest.raises(TypeError, match="but got donate_argnums; name them in"):
        zpp.jit(jitted, mesh="node:1", static_argnums=1, donate_argnums=0)


@pytest.mark.parametrize("is_jitted", [False, True])
def test_compiler_options_hold_where_nothing_is_rewritten(is_jitted):
    """Off is then the step as written, with these options."""
    placed = jax.device_put(np.arange(8.0), NamedSharding(MESH, PartitionSpec(AXES)))
    step = jax.numpy.sum
    if is_jitted:
        step = jax.jit(step, out_shardings=NamedSharding(MESH, PartitionSpec()))
    assert zpp.jit(step, mesh=NODES, **OFF)(placed) == 28
    wrong = zpp.jit(step, mesh=NODES, compiler_options={"xla_none_such": True}, **OFF)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_none_such"):
        wrong(placed)


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad, jax.make_jaxpr])
def test_a_call_inside_of_a_transformation_is_an_error(transform):
    """Also one of which no argument is traced."""
    fast = zpp.jit(scale, mesh="node:1")
    loaded = zpp.load(fast.rewritten(1.0, 2.0).step)
    given = np.ones(2) if transform is jax.vmap else 1.0
    for step in (fast, loaded):
        for call in (lambda x, step=step: step(x, 2.0)["result"],
                     lambda x, step=step: x * step(1.0, 2.0)["result"]):
            with pytest.raises(TypeError, match="call a rewritten step outside"):
                transform(call)(given)


def test_a_jaxpr_is_no_step():
    jaxpr = jax.make_jaxpr(lambda x: x + 1)(1.0)
    for call in (lambda: zpp.jit(jaxpr), lambda: zpp.export(jaxpr, 1.0)):
        with pytest.raises(TypeError, match="step: expected a function, but got "
                           "ClosedJaxpr; pass the function that jax.make_jaxpr"):
            call()
    with pytest.raises(TypeError, match="but got ClosedJaxpr; pass the function"):
        zpp.rewrite(jaxpr)
    with pytest.raises(ValueError, match="expected a module of StableHLO, but "
                       "got a jaxpr"):
        zpp.rewrite(str(jaxpr))
    with pytest.raises(TypeError, match="expected a function, but got int$"):
        zpp.jit(3)


def test_compiles_once_per_shape_type_and_static_value(monkeypatch):
    compiled = []
    rewrite = zpp.jax._jit.rewrite_step
    monkeypatch.setattr(zpp.jax._jit, "rewrite_step", lambda *args, **options: (
        compiled.append(1), rewrite(*args, **options))[1])
    fast = zpp.jit(scale, mesh="node:1", static_argnames="factor")
    array = np.arange(4, dtype=np.float32)
    for argument, factor, expected in (
            (array, 2, 1), (array + 1, 2, 1), (array, 3, 2),
            (array[:2], 3, 3), (array.astype(np.int32), 3, 4),
            (array, 2, 4)):
        fast(argument, factor)
        assert len(compiled) == expected


def test_a_step_that_is_jitted_already_keeps_its_donation():
    trainer = trainer_of(with_options(layers=1))
    fast = zpp.jit(jax.jit(trainer.step, donate_argnums=0), mesh=NODES,
                   **ALL_ON)
    state = trainer.init()
    batch = trainer.batch(tokens(TINY, 0))
    result, _ = fast(state, batch)
    fast(result, batch)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((state, result)))
    # Results come back where arguments were: nothing was compiled again.
    assert len(fast._latest.loaded) == 1

    arguments = trainer.abstract_state(), trainer.abstract_batch(BATCH)
    sizes = [function.lower(*arguments).compile().memory_analysis()
             .alias_size_in_bytes
             for function in (fast, jax.jit(trainer.step, donate_argnums=0))]
    assert sizes[0] == sizes[1] > 0


def test_report_needs_a_call_or_arguments():
    fast = zpp.jit(scale, mesh="node:1")
    with pytest.raises(ValueError, match="got neither"):
        fast.report()
    assert fast.report(1.0, 2.0)["collectives"] == []
    first = fast.rewritten(1.0, 2.0)
    assert fast.rewritten() is first
    assert fast.rewritten(1, 2) is not first
    fast(1.0, 2.0)
    assert fast.rewritten() is first
    assert fast.__name__ == "scale"


def test_collectives_left_alone_are_logged(caplog):
    trainer = trainer_of(TINY)
    with caplog.at_level(logging.INFO, logger="zpp"):
        result = zpp.rewrite(
            zpp.export(trainer.step, trainer.abstract_state(),
                       trainer.abstract_batch(BATCH)), mesh=NODES, **ALL_ON)
    for entry in result.left_alone:
        assert any(entry["reason"] in record.getMessage()
                   for record in caplog.records)


def test_a_step_in_which_nothing_was_rewritten_is_a_warning():
    with pytest.warns(UserWarning, match="expected a step with collectives"):
        zpp.rewrite(zpp.export(scale, 1.0, 2.0), mesh="node:1")
    mesh = jax.make_mesh((8,), ("data",),
                         axis_types=(jax.sharding.AxisType.Auto,))
    step = jax.shard_map(lambda x: jax.lax.psum(x, "data"), mesh=mesh,
                         in_specs=jax.sharding.PartitionSpec("data"),
                         out_specs=jax.sharding.PartitionSpec())
    with pytest.warns(UserWarning, match="left all 1 collectives"):
        zpp.rewrite(zpp.export(step, np.zeros(8)), mesh=NODES)


def test_a_loss_alone_between_nodes_is_no_warning():
    """A model for each node: all that crosses the nodes is a number."""
    def step(weights, x):
        def loss_of(weights):
            whole = jax.lax.all_gather(weights[0], "gpu", tiled=True)
            return jax.numpy.mean(jax.numpy.tanh(x @ whole) ** 2)

        loss, slopes = jax.value_and_grad(loss_of)(weights)
        return weights - slopes / 4, jax.lax.pmean(loss, AXES)

    own = PartitionSpec("node", "gpu")
    mapped = jax.shard_map(
        step, mesh=MESH, in_specs=(own, PartitionSpec("gpu")),
        out_specs=(own, PartitionSpec()), check_vma=False)
    given = zpp.export(mapped, *(jax.ShapeDtypeStruct(shape, "float32")
                                 for shape in ((2, 64, 64), (8, 64))))
    with warnings.catch_warnings(action="error"):
        report = zpp.rewrite(given, mesh=NODES).report
    assert 0 < report["total"]["after"]["node"] < 8


@pytest.mark.parametrize("options, message", [
    ({"mesh": "node:3,gpu:4"}, "12"),
    ({"secondary": "rack"}, "rack"),
    ({"secondary": 3}, "3"),
], ids=str)
def test_options_that_do_not_suit_the_step_are_compile_errors(options, message):
    trainer = trainer_of(TINY)
    step = zpp.export(trainer.step, trainer.abstract_state(),
                      trainer.abstract_batch(BATCH))
    with pytest.raises(zpp.CompileError, match=message):
        zpp.rewrite(step, **{"mesh": NODES, **ALL_ON, **options})


def test_decorator():
    mesh = jax.make_mesh((2, 4), ("node", "gpu"),
                         axis_types=(jax.sharding.AxisType.Auto,) * 2)
    spec = jax.sharding.PartitionSpec(("node", "gpu"))

    @zpp.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=spec, out_specs=spec)
    def plain(x):
        return jax.lax.psum(x, ("node", "gpu")) + x

    @zpp.jit(mesh={"node": 1}, options=zpp.Options(weights="i4"),
             static_argnames="factor")
    def scaled(x, *, factor):
        return x * factor

    with pytest.warns(UserWarning, match="left all 1 collectives"):
        np.testing.assert_array_equal(plain(np.ones(8)), np.full(8, 9))
    assert scaled(2.0, factor=3) == 6.0
    assert (plain.__name__, scaled.__name__) == ("plain", "scaled")


def test_methods():
    class Trainer:
        factor = 3.0

        @zpp.jit(mesh="node:1", static_argnums=0)
        def step(self, x):
            return x * self.factor

    with pytest.warns(UserWarning, match="expected a step with collectives"):
        assert Trainer().step(2.0) == 6
    assert Trainer.step.calls == Trainer().step.calls == 1


@pytest.mark.parametrize("library, hint", [
    ("flax.nnx.transforms", "a function of the state of flax.nnx.split"),
    ("equinox._jit", "the arrays of equinox.partition"),
    ("haliax.partitioning", "what haliax.named_jit returns"),
])
def test_other_objects_of_libraries_are_errors(library, hint):
    """Also what they have jitted, if a new release does it in a new way."""
    step = type("Model", (), {"__module__": library,
                              "__call__": lambda self, x: x})()
    with pytest.raises(TypeError, match="expected a function of arrays, but "
                       f"got Model of .*{hint}"):
        zpp.jit(step)


# What can be rewritten -------------------------------------------------------


@pytest.mark.slow
def test_all_forms_of_a_step_give_the_same():
    """What JAX lowers and exports, its bytes, and text in both forms."""
    trainer = trainer_of(with_options(layers=1))
    function = jax.jit(trainer.step, donate_argnums=0, keep_unused=False)
    arguments = trainer.abstract_state(), trainer.abstract_batch(BATCH)
    options = zpp.Options(mesh=NODES, **ALL_ON)
    expected = zpp.rewrite(zpp.export(function, *arguments), options)
    exported = jax.export.export(function)(*arguments)
    lowered = function.lower(*arguments)
    for form in (lowered, exported, exported.serialize(),
                 bytes(exported.serialize())):
        result = zpp.rewrite(form, options)
        assert result.report["total"] == expected.report["total"]
        assert result.step.donated == expected.step.donated
    for text in (lowered.as_text(), expected.step.text(),
                 exported.mlir_module(), exported.mlir_module_serialized):
        assert zpp.rewrite(text, options).step is None
    assert zpp.rewrite(exported.mlir_module_serialized, options
                       ).report["total"] == expected.report["total"]
    # The lowered step runs as it would have.
    state, batch = trainer.init(), trainer.batch(tokens(TINY, 0))
    results = zpp.load(zpp.rewrite(lowered, options).step)(state, batch)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert same_bits(results, zpp.load(expected.step)(
        trainer.init(), batch))


def test_an_unused_argument_of_what_was_lowered():
    lowered = jax.jit(lambda x, y: y + 1, donate_argnums=1).lower(
        np.ones(3, np.float32), jax.numpy.ones(4))
    step = zpp.rewrite(lowered, mesh="node:1").step
    assert step.donated == (1,)
    assert zpp.load(step)(np.ones(3, np.float32), jax.numpy.ones(4)).sum() == 8


@pytest.mark.parametrize("form, error, message", [
    (scale, TypeError, "but got function; call .lower"),
    (jax.jit(scale), TypeError, "call .lower"),
    (3, TypeError, "a jax.export.Exported, its serialized bytes or StableHLO "
     "text, but got int$"),
    (b"abc", ValueError, "of a jax.export.Exported, but got 3 other bytes"),
    (b"ML\xefRabc", ValueError, "expected a module of StableHLO, but got"),
    ("module {\n stablehlo.what\n}", zpp.CompileError,
     "but got a pretty form of 'stablehlo.what', which zpp does not know"),
], ids=["function", "jitted", "number", "bytes", "bytecode", "text"])
def test_other_forms_are_errors(form, error, message):
    with pytest.raises(error, match=message):
        zpp.rewrite(form, mesh="node:1")


def test_the_compiler_has_a_time_limit():
    with pytest.raises(zpp.CompileError, match="zpp-opt: expected an end within"
                       " tuning.compile_timeout, 1e-05 s, but got none"):
        zpp.jit(scale, mesh="node:1",
                tuning=zpp.Tuning(compile_timeout=1e-5))(1.0, 2.0)


def test_a_missing_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("ZPP_OPT", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        zpp.find_compiler()


# Schedule --------------------------------------------------------------------


def test_schedule_switches_without_compiling():
    """Compressed gradients for two calls, then none: each part bit-equal to
    what the options alone give."""
    config = with_options(layers=1)
    # Not one whose step others have compiled.
    trainer = gpt.Trainer(config)
    early, late = {**OFF, "gradients": "i8:i4"}, OFF
    options = {"mesh": NODES}
    fast = zpp.jit(trainer.step, schedule={2: {"gradients": "none"}}, **options,
                   **early)
    alone = {2: zpp.jit(trainer.step, **options, **early),
             4: zpp.jit(trainer.step, **options, **late)}

    state = expected = trainer.init()
    compiled = []
    for first, last in ((0, 2), (2, 4)):
        for index in range(first, last):
            batch = trainer.batch(tokens(config, index))
            assert fast.calls == index
            with jax.log_compiles(), recorded_compilations() as names:
                state, loss = fast(state, batch)
            compiled.append(len(names))
            expected, expected_loss = alone[last](expected, batch)
            assert same_bits((state, loss), (expected, expected_loss))
    assert compiled[0] >= 2 and compiled[1:] == [0, 0, 0]
    # The variant that the next call runs.
    assert not any(entry["rewritten"]
                   for entry in fast.report()["collectives"])
    fast.calls = 1
    assert any(entry["rewritten"] for entry in fast.report()["collectives"])


def test_bad_schedules_are_errors():
    with pytest.raises(ValueError, match="calls counted from 1, but got 0"):
        zpp.jit(scale, schedule={0: {"gradients": "none"}})
    with pytest.raises(ValueError, match="schedule: expected options among "
                       "mesh, .*, but got gradient"):
        zpp.jit(scale, schedule={1: {"gradient": "none"}})
    with pytest.raises(ValueError, match="a dict of options from call 2 on"):
        zpp.jit(scale, schedule={2: None})
    with pytest.raises(ValueError, match="schedule: weights: expected 'none'"):
        zpp.jit(scale, schedule={2: {"weights": "i3"}})
    fast = zpp.jit(scale, mesh="node:1")
    fast.calls = -1
    with pytest.raises(ValueError, match="expected a number of calls, but got"):
        fast(1.0, 2.0)


# Target ----------------------------------------------------------------------


def test_targets():
    step = zpp.export(scale, 1.0, 2.0)
    assert zpp.rewrite(step, mesh="node:1").target == "portable"
    with pytest.raises(ValueError, match="exported for cuda, but got .* cpu"):
        zpp.rewrite(step, mesh="node:1", target="cuda")


def test_cuda_without_the_runtime_is_portable_with_a_reason(
        monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("ZPP_XLA", str(tmp_path / "nowhere.so"))
    zpp.jax._runtime._library.cache_clear()
    step = zpp.export(scale, 1.0, 2.0, platforms=["cuda"])
    assert zpp.rewrite(step, mesh="node:1").target == "portable"
    assert "portable instead of cuda: expected libzpp_xla.so" in caplog.text
    zpp.jax._runtime._library.cache_clear()
