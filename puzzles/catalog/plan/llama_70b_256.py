"""Plan puzzle 3: pipelines on a slow network."""

from lib.planning import Job, gpu, transformer
from puzzles.catalog.papers import MEGATRON_CLUSTERS, PYTORCH_FSDP

from .puzzle import PlanPuzzle

PUZZLE = PlanPuzzle(
    slug="llama_70b_256",
    title="Llama 3 70B on a slow network",
    job=Job(transformer("llama-3-70b"), gpu("h100", network=12.5e9), gpus=256, batch=256, sequence=8192),
    best=9.092,
    statement="""\
You have 32 machines of 8 H100. The network is four times slower than usual: 100 Gb/s for each GPU. A step has one
sequence of 8,192 tokens for each GPU.

The rule of thumb "FSDP everywhere" gathers 140 GB of weights twice in a step and reduces the gradients, through that
network. Compare the time that this takes with the time of the flops, and with what a pipeline would send.
""",
    starter='''\
def llama_70b_256(job: Job) -> Split:
    """Llama 3 70B on 256 H100 with 100 Gb/s for each GPU."""
    # ----- your code -----
    # return Split(dp=..., pp=..., tp=..., schedule=..., chunks=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "A pipeline sends only the activations at the ends of its stages: 8,192 x 8,192 x 2 bytes of a "
        "microbatch. What must go through the network with `dp 8`, and what with `dp 256`?",
        "tp 4 or 8 in a machine, 8 stages, ZeRO 1. Then each GPU reduces the gradients of a few layers once a step.",
        "With 32 microbatches and 8 stages a fifth of the time is the bubble. Interleave: 5 chunks divide 80 "
        "layers into 40 stages.",
        "`return Split(dp=8, pp=8, tp=4, schedule='interleaved', chunks=5)`.",
    ),
    concept="""\
On a slow network, the bytes that cross it decide: FSDP sends the model, a pipeline sends activations at the ends of its
stages. By hand:

    flops       256 * 8192 * 6 * 69.5e9 * 1.08 / (256 * 989e12) = 3.73 s at the full rate
    ring        8 * 12.5e9 * 0.8 = 8e10 bytes/s between machines
    FSDP        (2 * 2 + 4) * 70.6e9 / 80e9 = 7.06 s on the network, 9 s of work at the same time
    pipeline    2 * 32 * 8192 * 8192 * 2 * 5 / 4 / (12.5e9 * 0.8) = 1.07 s of messages, hidden
    gradients   2 * 70.6e9 / 32 * 4 * 7/8 / (12.5e9 * 0.8) = 1.54 s once a step, mostly hidden
    bubble      7 / (32 * 5 + 7) * 100 = 4.19 % of the time with 5 chunks
""",
    in_practice="""\
Clouds with 100 Gb/s for each GPU are common. FSDP with full recomputation takes 1.3 times as long here; with 400 Gb/s
the two are within 11 % (`llama_70b_64`). Tensor parallelism over 16 GPUs takes more than three times as long, because
its exchanges cannot be hidden.
""",
    sources=(MEGATRON_CLUSTERS, PYTORCH_FSDP),
)
