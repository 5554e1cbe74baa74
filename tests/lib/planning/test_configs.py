"""Configs of other programs: parsed back they are the same split, and what a program cannot do is refused by name."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lib import RuleError
from lib.planning import Job, Split, gpu, transformer
from lib.planning.configs import FORMATS, export_config, read_config

LLAMA = transformer("llama-3-70b")
JOB = Job(LLAMA, gpu("h100"), 64, 256)
PLAN_A = Split(dp=2, pp=8, tp=4)
PLAN_B = Split(dp=64, zero=3, microbatch=2, recompute="full")


def job_for(split: Split, **how: Any) -> Job:
    gpus = split.dp * split.tp * split.pp * split.cp
    return Job(how.pop("model", LLAMA), gpu("h100"), gpus, split.dp * split.microbatch * 8, **how)


MEGATRON = [
    PLAN_A,
    PLAN_B,
    Split(dp=2, pp=8, tp=4, schedule="interleaved", chunks=5, zero=0, recompute="selective"),
    Split(dp=2, tp=2, cp=2, zero=2, sp=False, offload="states"),
    Split(dp=2, pp=4, recompute="full", every=5),
    Split(dp=2, pp=4, layers=(19, 21, 21, 19)),
    Split(dp=2, pp=3, layers=(0, 80, 0)),
    Split(dp=2, pp=2, schedule="interleaved", chunks=2, layers=(0, 40, 40, 0)),
]
TITAN = [
    PLAN_A,
    PLAN_B,
    Split(dp=4, pp=8, tp=2, schedule="zb_v", chunks=2, recompute="ops"),
    Split(dp=4, pp=2, schedule="gpipe", zero=0, recompute="full", every=2),
    Split(dp=8, cp=2, zero=3, shards=8, microbatch=2),
    Split(dp=8, zero=2),
    Split(dp=2, pp=4, layers=(19, 21, 21, 19)),
    Split(dp=2, pp=2, schedule="interleaved", chunks=2, layers=(0, 40, 40, 0)),
]


@pytest.mark.parametrize("split", MEGATRON, ids=str)
@pytest.mark.parametrize("fp8", [True, False])
def test_flags_of_megatron_say_the_same_split(split: Split, fp8: bool) -> None:
    job = job_for(split, fp8=fp8, sequence=4096)
    text = export_config(job, split, "megatron")
    assert text.startswith("# Megatron-LM d98e8a6")
    found = read_config(f"{text}--num-layers {LLAMA.layers}\n")
    assert found.split_on(job.gpus) == split
    assert (found.batch, found.sequence, found.fp8, found.kernels) == (job.batch, 4096, fp8, "megatron")


def test_flags_of_megatron_are_those_of_its_command_line() -> None:
    text = export_config(JOB, PLAN_A, "megatron")
    for flag in (
        "--tensor-model-parallel-size 4", "--sequence-parallel", "--pipeline-model-parallel-size 8",
        "--context-parallel-size 1", "--micro-batch-size 1", "--global-batch-size 256", "--seq-length 8192",
        "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather", "--bf16",
    ):  # fmt: skip
        assert flag in text.splitlines(), flag
    sharded = export_config(JOB, PLAN_B, "megatron").splitlines()
    assert "--data-parallel-sharding-strategy optim_grads_params" in sharded
    assert "--recompute-num-layers 1" in sharded
    assert {"--use-megatron-fsdp", "--use-distributed-optimizer", "--ckpt-format fsdp_dtensor"} <= set(sharded)
    on_host = export_config(job_for(Split(dp=8, offload="states")), Split(dp=8, offload="states"), "megatron")
    assert "--use-precision-aware-optimizer" in on_host.splitlines()


def test_megatron_counts_the_embedding_and_the_head_as_layers_where_layers_do_not_divide() -> None:
    split = Split(dp=1, pp=16, tp=8)
    text = export_config(job_for(split, model=transformer("llama-3-405b")), split, "megatron")
    assert "--account-for-embedding-in-pipeline-split" in text
    assert "--account-for-loss-in-pipeline-split" in text


@pytest.mark.parametrize("split", TITAN, ids=str)
def test_toml_of_torchtitan_says_the_same_split(split: Split) -> None:
    job = job_for(split, sequence=4096)
    text = export_config(job, split, "torchtitan")
    assert text.startswith("# torchtitan v0.2.2")
    found = read_config(text)
    assert found.split_on(job.gpus) == split
    assert (found.batch, found.sequence, found.fp8, found.kernels) == (job.batch, 4096, False, "pytorch")


def test_toml_of_torchtitan_counts_sequences_of_a_replica() -> None:
    tables = tomllib.loads(export_config(JOB, PLAN_A, "torchtitan"))
    assert tables["training"] == {"local_batch_size": 128, "global_batch_size": 256, "seq_len": 8192}
    assert tables["parallelism"]["pipeline_parallel_layers_per_stage"] == 10
    assert tables["parallelism"]["pipeline_parallel_schedule"] == "1F1B"
    interleaved = Split(dp=2, pp=4, schedule="interleaved", chunks=5)
    text = export_config(job_for(interleaved), interleaved, "torchtitan")
    assert read_config(f"{text}[model]\nlayers = 80\n").split_on(8) == interleaved


@pytest.mark.parametrize("split", [PLAN_B, Split(dp=8, zero=1, offload="states"), Split(dp=4, zero=0)], ids=str)
def test_json_of_deepspeed_says_the_same_split(split: Split) -> None:
    job = job_for(split)
    found = json.loads(export_config(job, split, "deepspeed"))
    steps, each = found["gradient_accumulation_steps"], found["train_micro_batch_size_per_gpu"]
    dp = found["train_batch_size"] // (steps * each)
    zero = found["zero_optimization"]
    offload = "states" if "offload_optimizer" in zero else "none"
    assert Split(dp, zero=zero["stage"], microbatch=each, recompute=found["_recompute"], offload=offload) == split
    assert found["_for"].endswith("00376da")


def fsdp_calls(text: str, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the Python calls, with a torch that only takes notes."""
    seen = SimpleNamespace(shards=[], wrapped=[], mesh=())

    def module(name: str, **names: Any) -> None:
        made = ModuleType(name)
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, name, made)

    def mesh(device: str, sizes: tuple[int, ...], mesh_dim_names: tuple[str, ...]) -> str:
        seen.mesh = dict(zip(mesh_dim_names, sizes, strict=True))
        return "mesh"

    module("torch", bfloat16="bf16", float32="fp32")
    module("torch.distributed")
    module("torch.distributed.device_mesh", init_device_mesh=mesh)
    module(
        "torch.distributed.fsdp",
        fully_shard=lambda what, **how: seen.shards.append((what, how)),
        MixedPrecisionPolicy=lambda **how: how,
        CPUOffloadPolicy=lambda: "offload",
    )
    module("torch.distributed.algorithms")
    module("torch.distributed.algorithms._checkpoint")
    name = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper"
    module(name, checkpoint_wrapper=lambda block: seen.wrapped.append(block) or f"again {block}")
    blocks = {str(k): f"block {k}" for k in range(4)}
    layers = SimpleNamespace(named_children=lambda: list(blocks.items()), register_module=blocks.__setitem__)
    seen.names = {}
    exec(compile(text, "shard.py", "exec"), seen.names)
    seen.names["shard"](SimpleNamespace(layers=layers))
    return seen


@pytest.mark.parametrize(
    "split",
    [PLAN_B, Split(dp=16, zero=2, offload="states"), Split(dp=16, zero=3, shards=8, recompute="full", every=2)],
    ids=str,
)
def test_python_of_fsdp2_makes_the_same_split(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fsdp_calls(export_config(job_for(split), split, "fsdp2"), monkeypatch)
    *blocks, (_, root) = seen.shards
    made = Split(
        dp=seen.mesh["shard"] * seen.mesh.get("replicate", 1),
        zero=3 if all(how["reshard_after_forward"] for _, how in blocks) else 2,
        shards=seen.mesh["shard"] if "replicate" in seen.mesh else 0,
        microbatch=seen.names["MICROBATCH"],
        recompute="full" if seen.wrapped else "none",
        every=4 // len(seen.wrapped) if seen.wrapped else 1,
        offload="states" if "offload_policy" in root else "none",
    )
    assert made == split
    assert seen.names["MICROBATCHES"] == 8
    assert len(blocks) == 4


@pytest.mark.parametrize(
    ("name", "split", "facts"),
    [
        ("deepspeed", PLAN_A, ("DeepSpeed's JSON", "tp 4", "it takes 1")),
        ("fsdp2", PLAN_A, ("FSDP2", "tp 4")),
        ("fsdp2", Split(dp=8, zero=1), ("FSDP2", "zero 1", "2 or 3")),
        ("megatron", Split(dp=2, pp=4, schedule="zb_h1"), ("Megatron-LM", "schedule zb_h1", "1f1b or interleaved")),
        ("megatron", Split(dp=16, zero=3, shards=8), ("Megatron-LM", "shards 8")),
        ("megatron", Split(dp=2, pp=4, recompute="full", every=3), ("every 3", "20 layers of a stage")),
        ("megatron", Split(dp=8, zero=0, offload="states"), ("Megatron-LM", "on the host with ZeRO only", "ZeRO 1")),
        ("megatron", Split(dp=2, cp=16), ("8208 tokens into 2 x cp pieces",)),
        ("torchtitan", Split(pp=2, schedule="interleaved", chunks=2, warmup=3), ("torchtitan", "warmup 3", "takes 0")),
        ("megatron", Split(pp=2, schedule="interleaved", chunks=2, warmup=3), ("Megatron-LM", "warmup 3")),
        ("torchtitan", Split(dp=8, zero=1), ("torchtitan", "zero 1", "0 or 2 or 3")),
        ("torchtitan", Split(dp=8, tp=2, sp=False, zero=3), ("torchtitan", "sp False")),
        ("torchtitan", Split(dp=8, offload="activations", zero=3), ("torchtitan", "offload activations")),
        ("torchtitan", Split(dp=4, cp=2, zero=0), ("torchtitan", "along cp too", "cp 2")),
        ("nemo", PLAN_A, ("no format 'nemo'", "megatron, torchtitan, deepspeed, fsdp2")),
    ],
)
def test_what_a_program_cannot_do_is_refused_by_name(name: str, split: Split, facts: tuple[str, ...]) -> None:
    with pytest.raises(RuleError) as why:
        export_config(job_for(split, sequence=8208 if split.cp == 16 else 8192), split, name)
    assert all(fact in str(why.value) for fact in facts), why.value


@pytest.mark.parametrize("name", ["torchtitan", "deepspeed", "fsdp2"])
def test_8_bits_are_exported_for_megatron_only(name: str) -> None:
    with pytest.raises(RuleError, match="no setting here for matrix products in 8 bits"):
        export_config(job_for(PLAN_B, fp8=True), PLAN_B, name)
    assert set(FORMATS) == {"megatron", "torchtitan", "deepspeed", "fsdp2"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("--micro-batch-size two", ("--micro-batch-size", "whole number", "two")),
        ("--seq-length 8 --recompute-granularity some", ("recompute-granularity", "some")),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy all", ("sharding-strategy all", "optim_grads_params")),
        ("--recompute-granularity full --recompute-method block", ("needs --num-layers",)),
        ("--pipeline-model-parallel-layout 'tt|L'", ("Et*3|t*4|t*2L", "tt|L")),
        ("--bf16 'x", ("cannot be read",)),
        ("hello", ("neither TOML of torchtitan nor flags",)),
        ("training = 3", ("training must be a table", "3")),
        ("[parallelism]\ntensor_parallel_degree = 2.5", ("tensor_parallel_degree", "2.5")),
        ("[parallelism]\nfsdp_reshard_after_forward = 'no'", ("default, always or never", "no")),
        ("[parallelism]\npipeline_parallel_degree = 2\nmodule_fqns_per_model_part = 3", ("list of lists", "3")),
        ("[activation_checkpoint]\nmode = 'all'", ("none, selective or full", "all")),
        ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'DualPipe'", ("1F1B", "DualPipe")),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(text: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(RuleError) as why:
        read_config(text)
    assert all(fact in str(why.value) for fact in facts), why.value


def test_a_config_that_does_not_divide_the_gpus_is_refused() -> None:
    found = read_config(export_config(JOB, PLAN_A, "megatron"))
    assert found.split_on(128) == replace(PLAN_A, dp=4)
    with pytest.raises(RuleError, match="pp x cp x tp is 32 in the config, which does not divide 100 GPUs"):
        found.split_on(100)
