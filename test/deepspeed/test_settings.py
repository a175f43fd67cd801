# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each setting of the table in docs/deepspeed.md, with zpp."""

import pathlib
import re

import pytest

import engines
from engines import ZEROPP, make_config
from zpp.deepspeed import _config

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "deepspeed.md"
#: Settings that zpp leaves to DeepSpeed, which train as without zpp.
KEPT = {
    "allgather_bucket_size": 1000, "allgather_partitions": False,
    "contiguous_gradients": False, "elastic_checkpoint": False,
    "enable_sanity_checks": True, "ignore_unused_parameters": False,
    "leaf_module": {"names": ["1"]}, "load_from_fp32_weights": False,
    "log_trace_cache_warnings": True, "memory_efficient_linear": False,
    "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"},
    "overlap_comm": True, "override_module_apply": False,
    "pipeline_loading_checkpoint": True,
    "reduce_bucket_size": 9000, "round_robin_gradients": True,
    "stage3_allgather_sequential": True,
    "stage3_gather_16bit_weights_on_model_save": True,
    "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0,
    "stage3_model_persistence_threshold": 1000,
    "stage3_module_granularity_threshold": 1000,
    "stage3_param_persistence_threshold": 10000, "stage3_prefetch_bucket_size": 3000,
    "stage3_use_all_reduce_for_fetch_params": True, "sub_group_size": 3000,
    "use_multi_rank_bucket_allreduce": False}
#: Those of the rest of the config.
KEPT_BESIDE = {
    "communication_data_type": "fp32", "dump_state": False,
    "gradient_clipping": 0.5, "wall_clock_breakdown": False,
    "zero_allow_untested_optimizer": True}
#: Those that do not go with zpp, with the end of the error.
REFUSED = {
    "mics_shard_size": (2, "expected -1 with the settings of ZeRO++, because MiCS has "
                           "collectives of its own, but got 2"),
    "reduce_scatter": (False, "expected true with the settings of ZeRO++, because "
                       "otherwise DeepSpeed sums all gradients on all ranks, but got "
                       "false"),
    "stage": (2, "expected 3 with the settings of ZeRO++, whose weights and gradients "
                 "zpp sends, but got 2"),
    "zenflow": ({}, "expected none with the settings of ZeRO++, because ZenFlow selects "
                    "gradients before it sends them, but got {}")}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*KEPT, *KEPT_BESIDE])
def test_what_is_kept_trains(pool, name):
    if name in KEPT:
        config = make_config({**ZEROPP, name: KEPT[name]})
    else:
        config = make_config(ZEROPP, bf16={"enabled": True}, **{name: KEPT_BESIDE[name]})
    ours = pool(engines.train, config, 3)[0]
    plain = pool(engines.train, engines.without_zpp(config), 3)[0]
    total = ours["report"]["total"]
    assert total["after"]["node"] < 0.6 * total["before"]["node"]
    for one, other in zip(ours["losses"], plain["losses"], strict=True):
        assert abs(one / other - 1) < 0.01


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_an_error(name):
    value, error = REFUSED[name]
    with pytest.raises(ValueError) as caught:
        _config.read(make_config({**ZEROPP, name: value}))
    assert str(caught.value) == f"zero_optimization.{name}: {error}"


def test_the_table_has_each_setting():
    """Of DeepSpeed's ZeRO."""
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    text = PAGE.read_text()
    names = {field.alias or name
             for name, field in DeepSpeedZeroConfig.model_fields.items()}
    deprecated = {"cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory",
                  "stage3_gather_fp16_weights_on_model_save"}
    assert {name for name in names - deprecated if f"`{name}`" not in text} == set()
    tried = {*KEPT, *REFUSED, *ZEROPP}
    untried = {"compute_grad_norm", "legacy_stage1", "parameter_alignment", "zero_quantized_nontrainable_weights",
               "save_muon_momentum_buffer_in_memory"}
    assert names - deprecated - tried == untried


@pytest.mark.parametrize("config, error", [
    ({"zpp": 3}, "zpp: expected options by name, such as {'weights': 'i8'}, but got 3"),
    ({"zpp": {"format": "i8"}},
     "zpp: expected options among mesh, …, guard, but got 'format'"),
    ({"zpp": {"weights": "i9"}}, "zpp.weights: expected …'i4:delta', but got 'i9'"),
    ({"zpp": {"tuning": {"block": 5}}}, "zpp.tuning: block: expected …, but got 5"),
    ({"zpp": {"accumulate": "gpu"}},
     "zpp.accumulate: DeepSpeed reduces the gradients of each micro-batch, so it has no "
     "effect; leave it out"),
    ({"zpp": {"weights": "i8"}, "zero_optimization": {"stage": 3},
      "compile": {"deepcompile": True}},
     "compile.deepcompile: expected false with the settings of ZeRO++, because its "
     "collectives are in the compiled graph, but got true"),
    ({"zpp": {"weights": "i8", "guard": -1}, "zero_optimization": {"stage": 3}},
     "zpp: guard: expected a positive bound for weights, but got -1"),
    ({"zero_optimization": {"zero_quantized_weights": "yes"}},
     "zero_optimization.zero_quantized_weights: expected true or false, but got 'yes'"),
    ({"zero_optimization": {"zero_hpz_partition_size": "node"}},
     "zero_optimization.zero_hpz_partition_size: expected a number of ranks, but got "
     "'node'")])
def test_bad_configs_are_errors(config, error):
    with pytest.raises(ValueError) as caught:
        _config.read(config)
    pattern = re.escape(error).replace("…", ".*")
    assert re.fullmatch(pattern, str(caught.value)), caught.value


def test_what_zpp_reads_is_taken_out():
    given = make_config(ZEROPP, {"weights": "i4:delta", "tuning": {"block": 64},
                                 "guard": {"gradients": 0.5}})
    rest, settings = _config.read(given)
    assert "zpp" not in rest
    assert not {*rest["zero_optimization"]} & {*ZEROPP}
    assert given["zero_optimization"]["zero_quantized_weights"]
    options = settings.options
    assert (options.weights, options.gradients, options.secondary) == (
        "i4:delta", "i8:i4", 2)
    assert options.tuning.block == 64
    assert settings.guard.gradients == 0.5
    assert _config.read({"train_batch_size": 4}) == ({"train_batch_size": 4}, None)
