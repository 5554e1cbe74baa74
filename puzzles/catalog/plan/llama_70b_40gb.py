"""Plan puzzle 6: recomputation as the last resort."""

from lib.planning import Job, gpu, transformer
from puzzles.catalog.papers import CHECKPOINTING, SEQUENCE_PARALLELISM

from .puzzle import PlanPuzzle

PUZZLE = PlanPuzzle(
    slug="llama_70b_40gb",
    title="Llama 3 70B on GPUs of 40 GB",
    job=Job(transformer("llama-3-70b"), gpu("a100-40gb"), gpus=64, batch=128, sequence=8192),
    best=56.705,
    tied={
        "tensor parallel + FSDP": 60.801,
    },
    statement="""\
64 GPUs have 2,560 GB together, and the state of Llama 3 70B takes 1,270 of them. 38 GiB of each GPU are for training.
The activations have to fit into the rest.

Recomputation (`recompute="full"`) keeps only the input of each layer, and computes the layer again in backward: a
third more work. `recompute="ops"` recomputes half of a layer's operations. Before you use either, look for other
ways to save memory: more ranks along `tp`, another stage of ZeRO, fewer microbatches in flight.
""",
    starter='''\
def llama_70b_40gb(job: Job) -> Split:
    """Llama 3 70B on 64 A100 of 40 GB."""
    # ----- your code -----
    # return Split(dp=..., pp=..., tp=..., zero=..., recompute=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "State by hand: 70.6 billion parameters times 18 bytes over 64 GPUs. What is left for activations?",
        "FSDP alone with full recomputation needs 43 GiB: logits and a gathered layer do not shrink with it. "
        "tp 2 halves them.",
        "In a pipeline with tp 8, ops instead of full recomputation fits as well. It runs only half of each "
        "layer again.",
        "`return Split(dp=2, pp=4, tp=8, schedule='interleaved', chunks=5, recompute='ops')`.",
    ),
    concept="""\
Full recomputation saves memory, but takes a third more flops. Use it only after everything that is free. By
hand:

    state         70.6e9 * (2 + 4 + 12) / 64 / 2**30 = 18.5 GiB of 38, if all of it is sharded
    activations   80 * 8192 * 274432 / 2**30 = 168 GiB for one sequence, nothing recomputed
    of a stage    20 * 4 * 8192 * 274432 / 8 / 2**30 = 20.9 GiB with pp 4, tp 8, 4 microbatches in flight
    with ops      20.9 / 2 = 10.4 GiB
    flops         128 * 8192 * 6 * 69.5e9 * 1.08 / (64 * 312e12) = 23.6 s at the full rate
    full          23.6 / 0.64 / 3 = 12.3 s more for full recomputation
""",
    in_practice="""\
Chen et al. (2016) introduced recomputation; Korthikanti et al. (2022) showed that sequence parallelism and the
recomputation of attention alone avoid most of it. PyTorch offers the same choice of single operations, as selective
activation checkpointing.
""",
    sources=(CHECKPOINTING, SEQUENCE_PARALLELISM),
)
