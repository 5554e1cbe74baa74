"""Plan puzzle 1: tensor parallelism stays inside a machine."""

from lib.planning import Job, Split, gpu, transformer
from puzzles.catalog.papers import FLASH_ATTENTION, MEGATRON, MEGATRON_CLUSTERS

from .puzzle import PlanPuzzle, PublishedRun

PUZZLE = PlanPuzzle(
    slug="gpt3_384",
    title="GPT-3 on 384 A100",
    job=Job(transformer("gpt-3"), gpu("a100"), gpus=384, batch=1536, sequence=2048),
    best=49.943,
    published=PublishedRun(
        MEGATRON_CLUSTERS,
        "Narayanan et al. trained this step in 2021 with tp 8, pp 12 and dp 4, with full recomputation, because flash "
        "attention did not exist yet",
        Split(dp=4, tp=8, pp=12, zero=0, sp=False, schedule="interleaved", chunks=4, recompute="full"),
        seconds=76.78,
        predicted=75.91,
        job=Job(transformer("gpt-3"), gpu("a100"), 384, 1536, 2048, flash=False, overlap=False),
    ),
    statement="""\
48 machines of 8 GPUs train GPT-3. One layer of it has 1.8 billion parameters, so the ranks must split each layer, or
divide the layers, or shard the state. Tensor parallelism (`tp`) shares each layer: its ranks exchange activations four
times in every layer, forward and backward. A pipeline (`pp`) exchanges them once between stages.

Inside a machine NVLink sends 12 times as fast as the network. Decide how far each axis reaches: ranks along `tp` are
neighbors, those along `dp` and `pp` are further apart.
""",
    starter='''\
def gpt3_384(job: Job) -> Split:
    """GPT-3 on 384 A100 of 80 GB."""
    # ----- your code -----
    # return Split(dp=..., pp=..., tp=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "With tp 16 the ranks of a layer are in two machines, and every exchange waits for the network. What "
        "is the largest `tp` that does not leave a machine?",
        "The larger `tp`, the smaller its matrices and the more it sends. tp 4 is enough if a pipeline "
        "divides the layers. `pp` has to divide 96 layers.",
        "A pipeline of 6 to 8 stages has a bubble. Interleaving makes it smaller: `schedule='interleaved'` "
        "with 4 or more chunks.",
        "`return Split(dp=16, pp=6, tp=4, schedule='interleaved', chunks=4)`.",
    ),
    concept="""\
Tensor parallelism sends activations in every layer, so it belongs on the fastest link. The pipeline sends little and
goes between machines. Data parallelism sends gradients once a step. By hand, for tp 4, pp 6, dp 16:

    parameters       96 * 12 * 12288**2 + 2 * 51200 * 12288 = 1.75e11
    bytes of a GPU   1.75e11 / 24 * (2 + 4 + 12 / 16) / 2**30 = 45.8 GiB, weights, gradients, states
    activations      96 / 6 * 6 * 2048 * 417792 / 4 / 2**30 = 19.1 GiB for 6 microbatches in flight
    flops            1536 * 2048 * 6 * 1.75e11 * 1.01 / (384 * 312e12) = 27.8 s at the full rate
    tp 4             8 * 3/4 * 2048 * 12288 * 2 / (300e9 * 0.8) = 0.00126 s a layer on NVLink
    tp 16            8 * 15/16 * 2048 * 12288 * 2 / (8 * 25e9 * 0.8) = 0.00236 s over the network, for a quarter of it
""",
    in_practice="""\
Megatron-LM has kept this rule since 2021 (Narayanan et al.): tensor parallelism up to the size of a machine, then a
pipeline, then data parallelism. With FSDP alone the step takes 1.28 times as long here, because each GPU has only 4
sequences to hide the gathering of 350 GB of weights behind.
""",
    sources=(FLASH_ATTENTION, MEGATRON, MEGATRON_CLUSTERS),
)
