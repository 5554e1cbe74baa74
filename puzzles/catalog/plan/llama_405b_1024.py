"""Plan puzzle 7: memory that decides."""

from lib.planning import Job, gpu, transformer
from puzzles.catalog.papers import LLAMA_3, ZERO_BUBBLE

from .puzzle import PlanPuzzle

PUZZLE = PlanPuzzle(
    slug="llama_405b_1024",
    title="Llama 3 405B on 1,024 H100, in 8 bits",
    job=Job(transformer("llama-3-405b"), gpu("h100"), gpus=1024, batch=512, sequence=8192, fp8=True),
    best=14.482,
    statement="""\
The matrix products run in 8 bits, twice as fast, so everything else takes a larger share of the time. 405 billion
parameters take 7.3 TB of state; 1,024 GPUs have 80 TB. Still, memory decides: with the wrong axes no plan
fits without recomputation.

`grade` shows a range of memory, from fused code to eager code with fragmentation. A plan fits if it fits in fused
code. The verdict says where this depends on the code. Choose the plan that you would run.
""",
    starter='''\
def llama_405b_1024(job: Job) -> Split:
    """Llama 3 405B on 1,024 H100 in 8 bits."""
    # ----- your code -----
    # return Split(dp=..., pp=..., tp=..., schedule=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "The fullest rank of a pipeline holds `pp` microbatches of its layers, whatever `pp` is. Only `tp` "
        "and `cp` make that smaller.",
        "tp 8, pp 16, dp 8 just fits without recomputation. Interleaving keeps more in flight than there "
        "is room for; zero bubble schedules do not.",
        "`return Split(dp=8, pp=16, tp=8, schedule='zb_v', chunks=2)`.",
    ),
    concept="""\
A plan without recomputation is a quarter faster, if its memory fits. Work out what takes the last GiB. By hand, for
tp 8, pp 16, dp 8:

    weights, gradients   4.06e11 / 128 * (2 + 4) / 2**30 = 17.7 GiB
    states               4.06e11 / 128 * 12 / 8 / 2**30 = 4.43 GiB, with ZeRO 1
    activations          126 * 8192 * 520192 / 8 / 2**30 = 62.5 GiB in 16 bits for 16 microbatches of 8 layers
    inputs in 8 bits     126 * 8192 * (2 * 16384 + 16384 + 53248) / 8 / 2**30 = 12.3 GiB less
    flops                512 * 8192 * 6 * 4.04e11 * 1.04 / (1024 * 1979e12) = 5.22 s at the full rate
    bubble               15 / (64 + 15) * 100 = 19 % with 1F1B
""",
    in_practice="""\
The range ends at 97 GiB for eager code, so this plan needs fused kernels and an allocator without fragmentation.
Without them, use full recomputation with interleaving: 17.0 s and 56 GiB. Zero-bubble schedules (Qi et al. 2024) hold
no more than 1F1B, which is why they fit here.
""",
    sources=(LLAMA_3, ZERO_BUBBLE),
)
