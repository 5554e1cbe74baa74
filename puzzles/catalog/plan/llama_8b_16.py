"""Plan puzzle 0: a model whose state is larger than a GPU."""

from lib.planning import Job, gpu, transformer
from puzzles.catalog.papers import PYTORCH_FSDP, TORCHTITAN, ZERO

from .puzzle import PlanPuzzle, PublishedRun

PUZZLE = PlanPuzzle(
    slug="llama_8b_16",
    title="Llama 3 8B on two machines",
    job=Job(transformer("llama-3-8b"), gpu("h100"), gpus=16, batch=64, sequence=8192),
    best=3.38,
    tied={
        "data parallel": 3.475,
        "FSDP": 3.582,
        "tensor parallel": 3.588,
        "pipeline + tensor parallel": 3.636,
        "HSDP": 3.662,
    },
    published=PublishedRun(TORCHTITAN, "The authors of torchtitan train this model with FSDP over all GPUs"),
    statement="""\
You train Llama 3 8B on two machines of 8 GPUs. Return a `Split`: how many replicas there are (`dp`), how many ranks
share each layer (`tp`), how many stages there are (`pp`), and what the replicas shard (`zero`). The product `dp * tp *
pp` is the number of GPUs.

The obvious plan is 16 replicas with `zero=0`. Work out by hand how many GiB one GPU would then hold. Then find a plan
that fits and loses little time. Several kinds of split are so close that the model cannot tell them apart; all of them
pass. The lesson is to recognize the plans that are bad.
""",
    starter='''\
def llama_8b_16(job: Job) -> Split:
    """Llama 3 8B on 16 H100, two machines."""
    # ----- your code -----
    # return Split(dp=..., zero=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "Every replica holds weights, gradients and the optimizer's state: 18 bytes for each of 8 billion parameters. "
        "What need not be on every GPU?",
        "ZeRO 1 shards the optimizer's state over the replicas, ZeRO 2 the gradients too, ZeRO 3 the weights as well. "
        "Which is the first that fits?",
        "ZeRO 2 fits, and sends only as much as plain data parallelism. `return Split(dp=16, zero=2)`.",
    ),
    concept="""\
A replica of a model takes 18 bytes for each parameter, before the first activation. Sharding the state over the
replicas makes it small. Up to ZeRO 2 nothing more is sent. By hand:

    parameters        32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 2 * 128256 * 4096 = 8.03e9
    unsharded state   8.03e9 * (2 + 4 + 12) / 2**30 = 134.6 GiB of 78
    with ZeRO 2       8.03e9 * (2 + (4 + 12) / 16) / 2**30 = 22.4 GiB
    activations       32 * 8192 * 139264 / 2**30 = 34 GiB for one sequence
    flops             64 * 8192 * 6 * (8.03e9 - 0.53e9) * 1.15 / (16 * 989e12) = 1.71 s at the full rate
    gradients         2 * 8.03e9 * 4 / (8 * 50e9 * 0.8) = 0.2 s on the network, hidden behind backward
""",
    in_practice="""\
Most people would use FSDP (Zhao et al. 2023), since it fits without further tuning. It gathers the weights again for
every microbatch, which costs a few per cent on a fast network. Tensor parallelism over 16 GPUs crosses the
machines in every layer, and takes more than three times as long.
""",
    sources=(ZERO, PYTORCH_FSDP, TORCHTITAN),
)
