# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that the ranks run: trainers that know nothing of zpp, with a config that
their users have."""

import copy
import os
from typing import Any

import torch
import torch.distributed as dist

from engines import ON, ZEROPP, mean, start

#: The file zero3_bf16.json of Axolotl.
CONFIG: dict[str, Any] = {
    "zero_force_ds_cpu_optimizer": False,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {
        "stage": 3, "overlap_comm": True, "contiguous_gradients": True,
        "sub_group_size": 0, "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0,
        "stage3_gather_16bit_weights_on_model_save": True},
    "bf16": {"enabled": True}, "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": False}
STEPS, BATCH, TOKENS, VOCAB = 8, 2, 32, 128


def make_config(is_on: bool) -> dict[str, Any]:
    """The config, with the settings of ZeRO++ if zpp is to run them."""
    config = copy.deepcopy(CONFIG)
    if is_on:
        config["zero_optimization"] |= ZEROPP
        config["zpp"] = dict(ON)
    return config


def make_llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=TOKENS,
        # Without these, generation ends early, of which there is none.
        bos_token_id=1, eos_token_id=2, pad_token_id=0))


def make_examples() -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(3, VOCAB, (4, TOKENS), generator=generator).tolist()
    return [{"input_ids": row, "labels": row} for row in rows] * 64


def _begin() -> None:
    """As a launcher does for the processes of a trainer."""
    start()
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    from accelerate.state import AcceleratorState, GradientState, PartialState
    from accelerate.utils import DistributedType
    from transformers import training_args
    # They use DeepSpeed, and bfloat16, on GPUs only.
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_CPU)
    training_args.is_torch_bf16_gpu_available = lambda: True
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def _result(losses: list[float], engine: Any) -> dict:
    import zpp.deepspeed
    try:
        total = zpp.deepspeed.report(engine)["total"]
    except ValueError:
        total = {}
    return {"losses": losses, "total": total}


def _arguments(is_on: bool, folder: str) -> dict[str, Any]:
    return {
        "output_dir": folder, "per_device_train_batch_size": BATCH, "max_steps": STEPS,
        "logging_steps": 1, "report_to": [], "learning_rate": 1e-3, "bf16": True,
        "lr_scheduler_type": "constant", "save_strategy": "no",
        "deepspeed": make_config(is_on), "seed": 0}


def _train(trainer: Any) -> dict:
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return _result(losses, trainer.model_wrapped)


def with_transformers(is_on: bool, folder: str) -> dict:
    _begin()
    from transformers import Trainer, TrainingArguments, default_data_collator
    arguments = TrainingArguments(**_arguments(is_on, folder))
    return _train(Trainer(make_llama(), arguments, train_dataset=make_examples(),
                          data_collator=default_data_collator))


def with_trl(is_on: bool, folder: str, adapters: bool = False) -> dict:
    """Fine-tunes, with adapters of PEFT if asked."""
    _begin()
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer
    words = {f"w{i}": i for i in range(VOCAB - 2)} | {"<eos>": VOCAB - 2,
                                                     "<pad>": VOCAB - 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    arguments = SFTConfig(**_arguments(is_on, folder), max_length=TOKENS, packing=False)
    texts = [" ".join(f"w{token % (VOCAB - 2)}" for token in example["input_ids"])
             for example in make_examples()]
    options = {}
    if adapters:
        from peft import LoraConfig
        options["peft_config"] = LoraConfig(r=16, target_modules="all-linear",
                                            task_type="CAUSAL_LM")
    return _train(SFTTrainer(
        make_llama(), arguments, train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>"),
        **options))


def with_accelerate(is_on: bool, folder: str) -> dict:
    _begin()
    from accelerate import Accelerator
    from accelerate.utils import DeepSpeedPlugin
    config = make_config(is_on)
    config["zero_optimization"] |= {
        "reduce_bucket_size": 4096, "stage3_prefetch_bucket_size": 4096,
        "stage3_param_persistence_threshold": 640}
    config |= {"gradient_clipping": 1.0, "gradient_accumulation_steps": 1,
               "train_micro_batch_size_per_gpu": BATCH,
               "train_batch_size": BATCH * dist.get_world_size()}
    accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(
        hf_ds_config=config, zero3_init_flag=False))
    model = make_llama()
    loader = torch.utils.data.DataLoader(
        [torch.tensor(example["input_ids"]) for example in make_examples()],
        batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), 1e-3), loader)
    losses = []
    for tokens, _ in zip(loader, range(STEPS)):
        loss = model(input_ids=tokens, labels=tokens).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss))
    return _result(losses, model)
