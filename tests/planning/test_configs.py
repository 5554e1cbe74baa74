"""Configs of other programs: parsed back they are the same split, and what a program cannot do is refused by name."""

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
from tests.support.refusals import Refused

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
EXPERTS = transformer("qwen3-235b-a22b")
OF_EXPERTS: list[tuple[Split, dict[str, Any]]] = [
    (Split(dp=16, ep=8), {"dispatch": "dedup", "graphs": "partial", "balanced": True}),
    (Split(dp=8, tp=2, pp=2, ep=16, recompute="selective"), {"modules": ("layernorm", "moe_act"), "ep_overlap": True}),
    (Split(dp=8, ep=8), {"graphs": "full", "gradient": 2, "state": 8, "fp8": True, "modules": ("moe",)}),
    (Split(dp=8, pp=2, ep=4, layers=(50, 45)), {"mtp": 1}),
]
"""Splits of models with experts, and the fields of their jobs."""

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
    assert (found.batch, found.sequence) == (job.batch, 4096)
    assert replace(job, **found.how) == job


@pytest.mark.parametrize(("split", "how"), OF_EXPERTS, ids=str)
def test_flags_of_megatron_say_the_same_job_of_experts(split: Split, how: dict[str, Any]) -> None:
    model = replace(EXPERTS, layers=EXPERTS.layers + how.get("mtp", 0))
    job = job_for(split, model=model, sequence=4096, **how)
    found = read_config(f"{export_config(job, split, 'megatron')}--num-layers {EXPERTS.layers}\n")
    assert found.split_on(job.gpus) == split
    assert replace(job, **found.how) == job
    assert set(found.unread) <= {"--overlap-param-gather"}


def test_flags_of_experts_are_those_of_megatrons_command_line() -> None:
    split = Split(dp=8, tp=2, pp=4, ep=16, schedule="interleaved", chunks=2)
    how: dict[str, Any] = {"dispatch": "dedup", "ep_overlap": True, "balanced": True, "graphs": "partial", "mtp": 1}
    model = transformer("deepseek-v3", layers=62)
    flags = export_config(job_for(split, model=model, **how, state=8), split, "megatron").splitlines()
    for flag in (
        "--expert-model-parallel-size 16", "--expert-tensor-parallel-size 1", "--moe-token-dispatcher-type flex",
        "--moe-flex-dispatcher-backend deepep", "--overlap-moe-expert-parallel-comm",
        "--moe-router-force-load-balancing", "--cuda-graph-impl transformer_engine",
        "--cuda-graph-scope attn moe_router moe_preprocess", "--mtp-num-layers 1", "--use-precision-aware-optimizer",
        "--exp-avg-dtype bf16", "--exp-avg-sq-dtype bf16",
    ):  # fmt: skip
        assert flag in flags, flag
    (layout,) = [flag for flag in flags if "layout" in flag]
    assert layout.endswith('mL"')


def test_toml_of_torchtitan_says_how_tokens_are_sent_to_experts() -> None:
    split = Split(dp=8, ep=8, zero=3, microbatch=2)
    for dispatch in ("alltoall", "dedup"):
        job = job_for(split, model=EXPERTS, dispatch=dispatch)
        found = read_config(export_config(job, split, "torchtitan") + "[debug]\nmoe_force_load_balance = true\n")
        assert found.split_on(8) == split
        assert (found.how["dispatch"], found.how["balanced"], found.unread) == (dispatch, True, ())


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
    assert (found.batch, found.sequence, found.unread) == (job.batch, 4096, ())
    assert replace(job, **found.how) == replace(job, kernels="pytorch")


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
    ("name", "given", "facts"),
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
        ("megatron", {"state": 6}, ("Megatron-LM", "state 6", "8 or 12", "in the job")),
        ("megatron", {"loss_chunks": 4}, ("Megatron-LM", "loss_chunks 4")),
        ("torchtitan", {"modules": ("moe",)}, ("torchtitan", "modules")),
        ("torchtitan", {"graphs": "full"}, ("torchtitan", "graphs full", "none")),
        ("torchtitan", {"ep_overlap": True}, ("torchtitan", "ep_overlap")),
    ],
)
def test_what_a_program_cannot_do_is_refused_by_name(
    name: str, given: Split | dict[str, Any], facts: tuple[str, ...]
) -> None:
    """A split, or fields of the job of a model with experts."""
    how: dict[str, Any] = {"model": EXPERTS, **given} if isinstance(given, dict) else {"sequence": 8192}
    split = Split(dp=8, ep=8, zero=3) if isinstance(given, dict) else given
    if split.cp == 16:
        how["sequence"] = 8208
    with pytest.raises(RuleError) as why:
        export_config(job_for(split, **how), split, name)
    assert all(fact in str(why.value) for fact in facts), why.value


@pytest.mark.parametrize("name", ["torchtitan", "deepspeed", "fsdp2"])
def test_8_bits_are_exported_for_megatron_only(name: str) -> None:
    with Refused("no fp8 setting"):
        export_config(job_for(PLAN_B, fp8=True), PLAN_B, name)
    assert set(FORMATS) == {"megatron", "torchtitan", "deepspeed", "fsdp2"}


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("--micro-batch-size two", ("--micro-batch-size", "whole number", "two")),
        (
            "--pipeline-model-parallel-size 0 --pipeline-model-parallel-layout 'Et*1L'",
            ("pipeline-model-parallel-size", "0"),
        ),
        ("--num-layers 8 --num-layers-per-virtual-pipeline-stage 0", ("per-virtual-pipeline-stage", "from 1 on")),
        ("--num-layers 8 --pipeline-model-parallel-size 3 --decoder-first-pipeline-num-layers 1", ("7 layers", "2")),
        ("[parallelism]\npipeline_parallel_degree = 0", ("pipeline_parallel_degree", "from 1 on")),
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


SIZES = "--num-layers 4 --hidden-size 64 --num-attention-heads 8 --vocab-size 1000 --seq-length 128 --bf16 "


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ("", {"ffn": 256, "kv_heads": 8, "head_size": 8, "gated": False, "tied": True, "dropout": True}),
        ("--swiglu --untie-embeddings-and-output-weights", {"ffn": 128, "gated": True, "tied": False}),
        ("--ffn-hidden-size 96 --group-query-attention --num-query-groups 2", {"ffn": 96, "kv_heads": 2}),
        ("--hidden-dropout 0 --attention-dropout 0.0 --kv-channels 16", {"dropout": False, "head_size": 16}),
        ("--num-experts 8 --moe-ffn-hidden-size 32", {"experts": 8, "top_k": 2, "expert_ffn": 32, "dense_layers": 0}),
        ("--num-experts 8 --moe-layer-freq '([0]*1+[1]*3)'", {"expert_ffn": 256, "dense_layers": 1}),
        ("--num-experts 8 --moe-router-num-groups 4 --moe-router-group-topk 2", {"groups": 4, "top_groups": 2}),
        ("--num-experts 8", {"biased": True, "groups": 0}),
        ("--num-experts 8 --disable-bias-linear", {"biased": False}),
        ("--window-size 64,0 --window-attn-skip-freq 2", {"window": 64, "full_every": 2}),
        ("--window-size '(64, 0)'", {"window": 64, "full_every": 0}),
    ],
)
def test_flags_of_megatron_give_a_models_sizes(flags: str, fields: dict[str, Any]) -> None:
    found = read_config(SIZES + flags)
    model = found.model()
    assert (model.layers, model.hidden, model.heads, model.vocab, model.sequence) == (4, 64, 8, 1000, 128)
    assert {name: getattr(model, name) for name in fields} == fields
    assert found.unread == ()
    assert found.model(layers=8) == replace(model, layers=8)


@pytest.mark.parametrize("name", ["num-layers", "hidden-size", "num-attention-heads", "vocab-size", "seq-length"])
def test_a_size_that_the_flags_lack_is_named(name: str) -> None:
    words = SIZES.split()
    at = words.index(f"--{name}")
    found = read_config(" ".join(words[:at] + words[at + 2 :]))
    assert found.missing == f"--{name}"
    with pytest.raises(RuleError, match=f"no --{name}"):
        found.model()


def test_sizes_that_another_model_does_not_have_are_named() -> None:
    found = read_config("--num-layers 40 --hidden-size 8192 --bf16")
    assert [one.split()[:2] for one in found.differences(LLAMA)] == [["layers", "40"]]


@pytest.mark.parametrize(
    ("flag", "split", "how"),
    [
        ("--overlap-grad-reduce", {}, {"overlap": True}),
        ("", {}, {"overlap": False}),
        ("--grad-reduce-in-bf16", {}, {"gradient": 2}),
        ("--attention-backend unfused", {}, {"flash": False}),
        ("--attention-backend local --use-flash-attn", {}, {"flash": True}),
        ("--fp8-format e4m3", {}, {"fp8": True}),
        ("--recompute-activations", {"recompute": "selective"}, {}),
        ("--recompute-granularity selective --recompute-modules core_attn", {"recompute": "selective"}, {}),
        ("--use-torch-fsdp2", {"zero": 3}, {}),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", {"zero": 2}, {}),
        ("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1", {"layers": (1, 3)}, {}),
        ("--num-experts 4 --moe-token-dispatcher-type alltoall", {}, {"dispatch": "alltoall", "balanced": False}),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", {}, {"dispatch": "dedup"}),
        ("--moe-token-dispatcher-type flex --moe-enable-deepep", {}, {"dispatch": "dedup"}),
        ("--overlap-moe-expert-parallel-comm --moe-grouped-gemm", {}, {"ep_overlap": True}),
        ("--moe-router-force-load-balancing", {}, {"balanced": True}),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router", {}, {"graphs": "partial"}),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", {}, {"graphs": "full"}),
        ("--cuda-graph-impl full_iteration", {}, {"graphs": "full"}),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --optimizer-cpu-offload",
         {"offload": "states"}, {"state": 8}),
        ("--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp32", {}, {"state": 9}),
        ("--recompute-granularity selective --recompute-modules moe_act layernorm", {"recompute": "none"},
         {"modules": ("layernorm", "moe_act")}),
        ("--recompute-granularity selective --recompute-modules core_attn moe", {"recompute": "selective"},
         {"modules": ("moe",)}),
        ("--recompute-granularity full --recompute-modules moe", {"recompute": "full"}, {"modules": ()}),
        ("--mtp-num-layers 1", {}, {"mtp": 1}),
        ("--expert-tensor-parallel-size 1 --cp-comm-type p2p --optimizer adam", {}, {}),
        ("--pipeline-model-parallel-size 3 --account-for-embedding-in-pipeline-split "
         "--account-for-loss-in-pipeline-split", {"pp": 3}, {}),
        ("--nproc_per_node 8 --nnodes=2 pretrain_gpt.py --lr 1e-4 --train-iters 10 --data-path a b c --seed 3", {}, {}),
    ],
)  # fmt: skip
def test_a_flag_that_changes_time_or_memory_is_read(flag: str, split: dict[str, Any], how: dict[str, Any]) -> None:
    found = read_config(SIZES + flag)
    assert {name: found.split.get(name) for name in split} == split
    assert {name: found.how[name] for name in how} == how
    assert found.unread == ()


@pytest.mark.parametrize(
    "flag",
    [
        "--recompute-modules core_attn gdn_norm",
        "--moe-token-dispatcher-type allgather",
        "--moe-router-load-balancing-type aux_loss",
        "--moe-flex-dispatcher-backend hybridep",
        "--kv-lora-rank 512",
        "--window-size 64,64",
        "--window-attn-skip-freq 1,1,0",
        "--moe-expert-capacity-factor 1.5",
        "--moe-layer-freq 2",
        "--expert-tensor-parallel-size 4",
        "--cp-comm-type a2a",
        "--optimizer sgd",
        "--tp-comm-overlap",
        "--overlap-param-gather",
        "--use-precision-aware-optimizer",
        "--account-for-loss-in-pipeline-split",
        "--multi-latent-attention",
        "--a-flag-of-a-later-version 3",
    ],
)
def test_a_flag_that_is_not_read_is_named_with_its_value(flag: str) -> None:
    more = "--recompute-granularity selective " if "modules" in flag else ""
    assert read_config(SIZES + more + flag).unread == (flag,)
    assert read_config(SIZES + more).unread == ()


def test_experts_that_megatron_would_cut_along_tp_are_named() -> None:
    flags = "--num-experts 8 --tensor-model-parallel-size 2 --expert-model-parallel-size 4 "
    assert [one.split()[:2] for one in read_config(SIZES + flags).unread] == [["no", "--expert-tensor-parallel-size"]]
    assert read_config(f"{SIZES}{flags}--expert-tensor-parallel-size 1").unread == ()
    assert read_config(f"{SIZES}{flags}--expert-tensor-parallel-size 2").unread == ("--expert-tensor-parallel-size 2",)


def test_16_bits_are_assumed_and_it_is_said() -> None:
    assert [one.split()[:2] for one in read_config(SIZES.replace("--bf16", "")).unread] == [["no", "--bf16"]]


def test_an_entry_of_torchtitan_that_is_not_read_is_named_with_its_value() -> None:
    text = (
        "[job]\ndump_folder = 'out'\n[training]\nenable_cpu_offload = true\nmixed_precision_param = 'bfloat16'\n"
        "seed = 1\n[optimizer]\nname = 'SGD'\nlr = 0.1\n"
        "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\n"
        "[activation_checkpoint]\nmode = 'none'\nmemory_budget = 0.5\n"
    )
    assert set(read_config(text).unread) == {
        "training.enable_cpu_offload = true",
        'optimizer.name = "SGD"',
        "quantize.linear.float8.enable_fsdp_float8_all_gather = true",
        "activation_checkpoint.memory_budget = 0.5",
    }


def test_a_model_of_torchtitan_is_known_by_its_flavor() -> None:
    llama = "[model]\nname = 'llama3'\nflavor = '70B'"
    assert read_config(llama).model() == LLAMA
    found = read_config("[model]\nname = 'llama3'\nflavor = 'debugmodel'")
    with pytest.raises(RuleError, match="flavor"):
        found.model()


def test_a_config_that_does_not_divide_the_gpus_is_refused() -> None:
    found = read_config(export_config(JOB, PLAN_A, "megatron"))
    assert found.split_on(128) == replace(PLAN_A, dp=4)
    with Refused("axes do not divide", inner=32, gpus=100):
        found.split_on(100)
