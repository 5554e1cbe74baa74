"""Plan puzzle 4: bubbles at scale."""

from lib.planning import Job, Split, gpu, transformer
from puzzles.catalog.papers import LLAMA_3, MEGATRON_CLUSTERS

from .puzzle import PlanPuzzle, PublishedRun

PUZZLE = PlanPuzzle(
    slug="llama_405b_16384",
    title="Llama 3 405B on 16,384 H100",
    job=Job(transformer("llama-3-405b"), gpu("h100"), gpus=16384, batch=2048, sequence=8192),
    best=6.461,
    published=PublishedRun(
        LLAMA_3,
        "Meta trained it with tp 8, pp 16 and dp 128, and sharded the gradients; the first and the last stage had "
        "one layer less, and the report states 400 teraFLOP/s for each GPU",
        Split(dp=128, tp=8, pp=16, zero=2, schedule="interleaved", chunks=8),
        seconds=6.461,
        predicted=6.584,
    ),
    statement="""\
You have 16,384 GPUs and a batch of 2,048 sequences, or 16 million tokens. A larger batch would train worse. So there
are 8 GPUs for each sequence, and a replica of tp 8 and pp 16 has only 16 microbatches.

With 1F1B the bubble is as long as `pp - 1` microbatches. With `schedule="interleaved"` a rank has several chunks of
layers, and the bubble is divided by the number of chunks. The model has 126 layers: with 128 stages, the first stage
holds only the embedding and the last stage only the head.
""",
    starter='''\
def llama_405b_16384(job: Job) -> Split:
    """Llama 3 405B on 16,384 H100."""
    # ----- your code -----
    # return Split(dp=..., pp=..., tp=..., schedule=..., chunks=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "With tp 8, pp 16, dp 128 and 1F1B, 16 microbatches take as long as 31. Half of the time is the bubble.",
        "Interleaved with v chunks the bubble is (p - 1) / v microbatches. How many activations does a rank hold then?",
        "Fewer stages have a shorter bubble as well, but every GPU then holds more layers: pp 8 leaves little "
        "of 78 GiB.",
        "The published split: `return Split(dp=128, pp=16, tp=8, zero=2, schedule='interleaved', chunks=8)`.",
    ),
    concept="""\
The batch is limited, so at scale every replica has few microbatches, and the bubble decides. By hand, for tp 8, pp
16, dp 128:

    microbatches      2048 / 128 = 16 of a replica
    1F1B              (16 - 1) / (16 + 16 - 1) * 100 = 48.4 % bubble
    8 chunks          (16 - 1) / (16 * 8 + 16 - 1) * 100 = 10.5 % bubble
    weights, states   4.06e11 / 128 * (2 + 12 / 128) / 2**30 = 6.19 GiB; gradients come as activations go
    activations       128 * 8192 * 520192 / 8 / 2**30 = 63.5 GiB: 16 microbatches of 8 chunks in flight
    flops             2048 * 8192 * 6 * 4.04e11 * 1.04 / (16384 * 989e12) = 2.61 s at the full rate
""",
    in_practice="""\
Meta reports 400 teraFLOP/s for each GPU, 41 % of the peak, on 16,384 GPUs, and 430 on 8,192, where a replica has
twice the microbatches. Their schedule limits how many microbatches are warmed up, which holds less memory than
Megatron's.
""",
    sources=(LLAMA_3, MEGATRON_CLUSTERS),
)
