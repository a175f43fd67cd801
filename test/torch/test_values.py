# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values that must not be rounded with others, or not at all, on four ranks."""

import pathlib

import pytest
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

import training
import values
from test_fsdp import HELD
from training import ZEROPP, replicated_mesh

import zpp

ONE_DIM = ("norm.weight", "norm.bias", "up.bias", "down.bias", "gamma")
DELTA = {**ZEROPP, "weights": "i4:delta"}
AS_THEY_ARE = {**ZEROPP, "weights": "none"}


def is_one_dim(name: str) -> bool:
    return name.endswith((*ONE_DIM, "2.bias"))


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("options", [
    ZEROPP, {**ZEROPP, "weights": "i4"}, HELD, DELTA, {**DELTA, "accumulate": "gpu"}],
    ids=["i8", "i4", "held", "i4:delta", "sums"])
def test_a_layer_scale_trains(pool, known, options):
    """At 1e-5 beside norms of 1, it is not gathered as zero: weights under it have
    gradients."""
    expected = known(values.train_scaled, None)
    for found, other in zip(pool(values.train_scaled, options), expected):
        assert found["losses"] == pytest.approx(other["losses"], rel=0.01)
        for name, gradient in found["gradients"].items():
            assert relative(gradient, other["gradients"][name]) < 0.25, name
        for name, weight in found["weights"].items():
            # Some are made of gradients alone, of weights that are rounded.
            bound = 0.3 if name.endswith(("gamma", "norm.bias")) else 0.05
            assert relative(weight, other["weights"][name]) < bound, name


@pytest.mark.parametrize("options", [ZEROPP, HELD, DELTA], ids=["i8", "held", "i4:delta"])
def test_parameters_of_one_dim_are_gathered_as_they_are(pool, options):
    for weights in pool(values.gathered, options):
        for found, expected in weights:
            if sum(size > 1 for size in expected.shape) < 2:
                assert torch.equal(found, expected)
            else:
                assert relative(found.float(), expected.float()) < 0.01


@pytest.mark.parametrize("gradients", ["i8", "i8:i8", "i8:i4", "i4"])
@pytest.mark.parametrize("more", [
    {}, {"reduce_dtype": torch.bfloat16}, {"mesh": True}], ids=["f32", "bf16", "HSDP"])
def test_gradients_of_one_dim_are_those_of_fsdp2(pool, known, gradients, more):
    """Those of matrices are rounded, each in blocks of its own."""
    if "mesh" in more:
        more = {"mesh": values_mesh}
    options = {**AS_THEY_ARE, "gradients": gradients}
    expected = known(values.train_scaled, None, steps=1, **more)
    for found, other in zip(pool(values.train_scaled, options, steps=1, **more),
                            expected):
        for name, gradient in found["gradients"].items():
            wanted = other["gradients"][name]
            if is_one_dim(name):
                # Summed in another order.
                accuracy = 2**-6 if "reduce_dtype" in more else 1e-5
                assert relative(gradient, wanted) < accuracy, name
            else:
                assert 0 < relative(gradient, wanted) < 0.25, name


def values_mesh():
    return replicated_mesh(((0, 1), (2, 3)))


def whole_copies():
    return replicated_mesh(((0,), (1,), (2,), (3,)))


@pytest.mark.parametrize("width", [1024, 1000])
@pytest.mark.parametrize("options, volume", [
    ({**HELD, "gradients": "i8:i4"}, 0.766), (DELTA, 0.516)], ids=["i8", "i4:delta"])
def test_what_is_exact_costs_few_bytes(pool, options, volume, width):
    """Of a model, volumes are those of its matrices; also where ranks do not divide them
    into whole blocks."""
    for before, after in pool(values.bytes_of_block, options, width):
        assert before == pytest.approx(2, rel=0.001)
        assert after == pytest.approx(volume, rel=0.01)


#: Bytes in float32 of a rank's part of the vectors of two blocks.
VECTORS = 2 * (2 * values.WIDTH + 128 + values.WIDTH)


@pytest.mark.parametrize("options, mesh, vectors", [
    (ZEROPP, None, {"all_gather": 2 * VECTORS, "reduce_scatter": VECTORS}),
    ({**ZEROPP, "gradients": "i4"}, None,
     {"all_gather": 2 * VECTORS, "reduce_scatter": 2 * VECTORS}),
    (HELD, None, {"all_gather": VECTORS, "reduce_scatter": VECTORS}),
    ({**DELTA, "accumulate": "gpu"}, None,
     {"all_gather": VECTORS, "reduce_scatter": VECTORS}),
    (ZEROPP, values_mesh, {"all_reduce": 2 * VECTORS}),
    (ZEROPP, whole_copies, {"all_reduce": 2 * VECTORS})],
    ids=["i8", "one hop", "held", "sums", "HSDP", "copies"])
def test_what_is_exact_is_in_the_same_messages(pool, options, mesh, vectors):
    """A step has as many collectives as without, and the bytes of both, also of what is
    held."""
    with_vectors, without = (pool(values.calls_of_step, options, has_vectors, mesh)
                             for has_vectors in (True, False))
    for (calls, sent), (fewer, less) in zip(with_vectors, without):
        assert calls == fewer and calls
        assert sent - less == vectors


@pytest.mark.parametrize("is_apart", [False, True], ids=["joined", "apart"])
@pytest.mark.parametrize("options", [
    ZEROPP, {**ZEROPP, "weights": "i4"}, HELD, DELTA],
    ids=["i8", "i4", "held", "i4:delta"])
def test_bits_stay_as_they_are(pool, known, options, is_apart):
    """Losses are those of FSDP2, where rounded bits would be other numbers, or NaN."""
    expected = known(values.train_packed, None, is_apart=is_apart)
    for found, other in zip(pool(values.train_packed, options, is_apart=is_apart),
                            expected):
        assert found["losses"] == pytest.approx(other["losses"], rel=0.01)
        assert torch.equal(found["base"], other["base"])
        assert found["warnings"] == [
            "frozen weights of '0.base.bits': they are not numbers but bits, such as those "
            "of a base that is quantized; they travel as they are"]


def test_bits_cross_nodes_once(pool):
    first, *later = pool(values.train_packed, HELD, is_apart=True)[0]["sent"]
    assert first > 0 and not any(later)


def test_named_parameters_stay_exact(pool):
    options = {**ZEROPP, "exact": "0.up.*,2.weight"}
    for errors in pool(values.names_of_exact, options):
        assert {name for name, error in errors.items() if error} == {
            "0.down.weight", "1.up.weight", "1.down.weight"}


def test_names_of_no_parameter_are_errors(pool):
    for error in pool(training.error_of, {**ZEROPP, "exact": "0.dwon.*"}):
        assert "exact: expected names of parameters such as '" in error
        assert "', or patterns of them, but got '0.dwon.*'" in error


def test_a_lost_parameter_is_named(pool):
    for found in pool(values.guarded, {**ZEROPP, "weights": "i4"}, steps=3):
        (text,) = found["warnings"]
        page = (pathlib.Path(__file__).parents[2] / "docs" / "torch.md").read_text()
        assert f"<!-- guard: begin -->\n```\n{text}\n```\n" in page
        assert 0.6 < found["metrics"]["error/weights/spiked"] < 0.63
        assert 0 < found["metrics"]["error/weights/first.weight"] < 0.2
        assert 0 < found["metrics"]["error/gradients/first.weight"] < 0.3


def test_a_guard_steps_down(pool):
    options = {**ZEROPP, "weights": "i4", "gradients": "i8"}
    for found in pool(values.guarded, {**options, "guard": 0.3}, steps=4):
        (text,) = found["warnings"]
        assert text.endswith("above the bound of 0.3; all weights of module '' travel as "
                             "i8 from the next step on")
    sent = [pool(values.guarded, {**options, **more}, steps=4)[0]["report"]
            for more in ({}, {"guard": 0.3})]
    gathers = [{entry["after"]["node"]: entry["calls"] for entry in entries
                if entry["kind"] == "all_gather"} for entries in sent]
    # The first two gathers are those before the errors are known.
    assert len(gathers[0]) == 1 and len(gathers[1]) == 2


def test_a_guard_takes_one_step_for_all_parameters(pool):
    options = {**ZEROPP, "weights": "i4", "guard": zpp.Guard(weights=0.05)}
    for found in pool(values.guarded, options, steps=4):
        first, second = found["warnings"]
        assert "'first.weight'" in first and "'spiked'" in second
        for text in (first, second):
            assert text.endswith("travel as i8 from the next step on")


def test_a_guard_steps_down_from_formats_that_are_not_named(pool):
    for found in pool(values.guarded, {"mesh": ZEROPP["mesh"], "guard": 1e-4}, steps=4):
        assert {text.partition(" of ")[0] for text in found["warnings"]} == {
            "guard: the weights", "guard: the gradients"}


def test_a_guard_knows_a_loss_scale_that_is_too_large(pool):
    """What is not finite makes its block NaN, which is not the format's doing."""
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float16)
    options = {**ZEROPP, "guard": zpp.Guard(gradients=0.9, every=1)}
    for found in pool(values.guarded, options, steps=4, policy=policy, scale=2.0**22):
        assert not found["warnings"]


def test_a_frozen_parameter_that_is_lost_becomes_exact(pool):
    for found in pool(values.guarded, {**ZEROPP, "weights": "i4"}, steps=4, frozen=True):
        assert found["warnings"] == [
            "frozen weights of 'spiked': more than half of them is lost in rounding; "
            "they travel as they are"]


@pytest.mark.parametrize("guard", [0, "much", True])
def test_bad_guards_are_errors(pool, guard):
    for error in pool(training.error_of, {**ZEROPP, "guard": guard}):
        assert "guard: expected" in error


def test_weights_in_a_flat_parameter(pool):
    """Blocks would have elements of several of them."""
    warning = ("58% of what is trained has one dim, such as 'flat': it travels as it is, as "
               "gains and biases have to; only weights of two or more dims are compressed")
    assert pool(values.compress_flat, ZEROPP) == 4 * [([warning], True)]
    assert pool(values.compress_flat, {**AS_THEY_ARE, "gradients": "none",
                                       "secondary": "gpu"}) == 4 * [([], True)]
    # A base of bits may be flat.
    assert pool(values.compress_flat, ZEROPP, frozen=True) == 4 * [([], True)]
