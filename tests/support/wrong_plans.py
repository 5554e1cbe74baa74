"""Natural plans that do not pass, by puzzle: the split, what it gets, and a word of the reason."""

from __future__ import annotations

from lib.planning import Split

FULL = "full"

NOTHING_SHARDED = Split(4, 2, 2, zero=0, schedule="interleaved", chunks=4, layers=(4, 5, 5, 4, 4, 4, 4, 2))
"""With ZeRO 0, and stages whose layers were chosen by a search."""

WRONG = [
    ("llama_8b_16", Split(dp=16, zero=0), "memory", "optimizer states 89.7"),
    ("llama_8b_16", Split(dp=2, tp=8), "slow", "tensor parallel communication"),
    ("llama_8b_16", Split(tp=16), "slow", "tensor parallel communication"),
    ("llama_8b_16", Split(pp=16), "slow", "the pipeline's bubble"),
    ("llama_8b_16", NOTHING_SHARDED, "slow", "the pipeline's bubble"),
    ("gpt3_384", Split(dp=384), "memory", "gradients"),
    ("gpt3_384", Split(dp=24, tp=16, recompute=FULL), "slow", "tensor parallel communication"),
    ("gpt3_384", Split(dp=384, zero=3, microbatch=4, recompute=FULL), "slow", "collectives that slow computation"),
    ("gpt3_384", Split(dp=4, tp=8, pp=12, recompute=FULL), "slow", "recomputation"),
    ("mixtral_64", Split(dp=64, zero=3), "slow", "waiting for replicas"),
    ("mixtral_64", Split(dp=8, tp=8), "slow", "tensor parallel communication"),
    ("mixtral_64", Split(dp=64, ep=4), "memory", "gradients 48.0"),
    ("llama_70b_256", Split(dp=256, zero=3, recompute=FULL), "slow", "collectives that slow computation"),
    ("llama_70b_256", Split(dp=32, tp=8), "slow", "waiting for replicas"),
    ("llama_70b_256", Split(dp=16, tp=16), "slow", "tensor parallel communication"),
    ("llama_70b_256", Split(dp=8, pp=8, tp=4), "slow", "the pipeline's bubble"),
    ("llama_405b_16384", Split(dp=128, pp=16, tp=8), "slow", "the pipeline's bubble"),
    ("llama_405b_16384", Split(dp=2048, tp=8, zero=3, recompute=FULL), "slow", "waiting for replicas"),
    ("llama_405b_16384", Split(dp=64, pp=16, tp=16), "slow", "the pipeline's bubble"),
    ("llama_8b_long", Split(dp=8, tp=16), "slow", "tensor parallel communication"),
    ("llama_8b_long", Split(dp=8, pp=2, tp=8, recompute=FULL), "slow", "the pipeline's bubble"),
    ("llama_8b_long", Split(dp=128), "split", "dp x microbatch may be 1, 2, 4 or 8"),
    ("llama_8b_long", Split(dp=8, pp=16, zero=3, recompute=FULL), "memory", "embedding, head and logits"),
    ("llama_70b_40gb", Split(dp=64, zero=3, recompute=FULL), "memory", "38.0 are for training"),
    ("llama_70b_40gb", Split(dp=8, tp=8, zero=3, recompute=FULL), "slow", "collectives that slow computation"),
    ("llama_70b_40gb", Split(dp=2, tp=8, pp=4), "memory", "activations 21.0"),
    ("llama_405b_1024", Split(dp=128, tp=8, zero=3), "memory", "activations"),
    ("llama_405b_1024", Split(dp=8, tp=8, pp=16, schedule="zb_h1"), "slow", "the pipeline's bubble"),
    ("llama_405b_1024", Split(dp=16, tp=8, pp=8), "memory", "activations 51.1"),
    ("llama_70b_64", Split(dp=64, zero=3), "memory", "activations 167.6"),
    ("llama_70b_64", Split(dp=4, tp=16), "slow", "tensor parallel communication"),
    ("llama_70b_64", Split(dp=4, pp=16, recompute=FULL), "slow", "the pipeline's bubble"),
    ("deepseek_2048", Split(dp=128, pp=16, ep=64), "slow", "the pipeline's bubble"),
    ("deepseek_2048", Split(dp=64, pp=16, ep=4, tp=2, schedule="zb_h1"), "memory", "gradients"),
    ("deepseek_2048", Split(dp=1024, tp=2, ep=8, zero=3, recompute=FULL), "slow", "waiting for replicas"),
    ("deepseek_2048", Split(dp=128, pp=16, ep=8, recompute=FULL), "slow", "the pipeline's bubble"),
]

REFUSED = [
    ("llama_8b_16", Split(dp=16, tp=2), "makes 32 GPUs, and there are 16; dp 8 would"),
    ("llama_8b_16", Split(dp=5), "makes 5 GPUs, and there are 16; dp 16 would"),
    ("llama_8b_16", Split(dp=16, zero=4), "ZeRO has the stages 0 to 3"),
    ("llama_8b_16", Split(dp=16, schedule="1f2b"), "there is no schedule '1f2b'; there are 1f1b"),
    ("llama_8b_16", Split(dp=16, zero=2, offload="states"), "offload is 'none' in this puzzle"),
    (
        "llama_405b_1024",
        Split(8, 8, 16, schedule="zb_v", chunks=2, recompute="selective"),
        "recompute is 'none' in this",
    ),
    ("llama_8b_16", Split(dp=2**31), "dp of a split is less than"),
    ("gpt3_384", Split(dp=3, tp=128), "tp 128 does not divide 96 heads; tp may be"),
    ("gpt3_384", Split(dp=4, tp=1, pp=96), "are played; take more replicas or microbatch 2"),
    ("llama_8b_long", Split(cp=128), "cp 128 is too many: the game plays rings of at most 64 ranks"),
    ("mixtral_64", Split(dp=64, ep=5), "ep 5 does not divide 8 experts; ep may be 1, 2, 4 or 8"),
    ("deepseek_2048", Split(dp=32, pp=64), "cannot fill 64 stages; pp x chunks may be at most 63"),
]
