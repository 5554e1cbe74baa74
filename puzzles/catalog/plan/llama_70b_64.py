"""Plan puzzle 8: where the model cannot tell."""

from lib.planning import Job, gpu, transformer
from puzzles.catalog.papers import CONTROLLABLE_MEMORY, NEMO_PERFORMANCE, PYTORCH_FSDP

from .puzzle import PlanPuzzle, PublishedRun

PUZZLE = PlanPuzzle(
    slug="llama_70b_64",
    title="Llama 3 70B on 64 H100: two good plans",
    job=Job(transformer("llama-3-70b"), gpu("h100"), gpus=64, batch=256, sequence=8192),
    best=33.534,
    tied={
        "FSDP": 36.828,
    },
    published=PublishedRun(
        NEMO_PERFORMANCE,
        "NVIDIA's NeMo trains it on 64 H100 with tp 4, pp 4, cp 2 and 5 chunks, in 8 bits and with 128 sequences: "
        "10.7 s measured, 10.7 s predicted for that run",
    ),
    statement="""\
You have 64 GPUs. Would you use a pipeline with tensor parallelism, or FSDP with recomputation and nothing else to set
up? With 400 Gb/s for each GPU both are reasonable.

The model predicts times that differ by less than 11 %. Half of its predictions are off by 2 to 10 %, so it cannot
decide between them, and both pass. Choose by their memory and by what you would have to build.
""",
    starter='''\
def llama_70b_64(job: Job) -> Split:
    """Llama 3 70B on 64 H100."""
    # ----- your code -----
    # return Split(dp=..., pp=..., tp=..., zero=..., recompute=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "FSDP without recomputation needs 199 GiB. How much is left with recomputation, and how much time does it "
        "cost?",
        "FSDP: dp 64, ZeRO 3, microbatch 2 hides the gathering better than 1 does. A pipeline: tp 4, pp 8, dp 2.",
        "`return Split(dp=64, zero=3, microbatch=2, recompute='full')`, or `return Split(dp=2, pp=8, tp=4, "
        "schedule='zb_v', chunks=2)`.",
    ),
    concept="""\
Two plans whose predictions differ by less than the model's error are equally good. Then memory, code and people decide.
By hand:

    state           70.6e9 * 18 / 64 / 2**30 = 18.5 GiB of a GPU, if all of it is sharded
    activations     80 * 8192 * 274432 / 2**30 = 168 GiB for a sequence, nothing recomputed
    inputs only     80 * 2 * 8192 * 8192 * 2 / 2**30 = 20 GiB for 2 sequences, with full recomputation
    flops           256 * 8192 * 6 * 69.5e9 * 1.08 / (64 * 989e12) = 14.9 s at the full rate
    recomputation   14.9 / 0.6 / 3 = 8.28 s more
    gathering       2 * (2 + 2 + 4) * 70.6e9 / (8 * 50e9 * 0.8) = 3.53 s on the network, behind computation
""",
    in_practice="""\
Teams that train many different models often choose FSDP, since it needs no change of the model. Teams that train one
model for months choose the pipeline. NeMo's recipe for this model has a pipeline. ZB-V needs 73 of 78 GiB in fused
code; 1F1B needs 69 GiB, and its step takes 4 % longer.
""",
    sources=(CONTROLLABLE_MEMORY, NEMO_PERFORMANCE, PYTORCH_FSDP),
)
