"""Plan puzzle 2: experts inside a machine."""

from lib.planning import Job, Split, gpu, transformer
from puzzles.catalog.papers import GSHARD, MEGATRON_CORE_MOE, MIXTRAL

from .puzzle import PlanPuzzle, PublishedRun

PUZZLE = PlanPuzzle(
    slug="mixtral_64",
    title="Mixtral 8x7B on 64 H100",
    job=Job(transformer("mixtral-8x7b"), gpu("h100"), gpus=64, batch=256, sequence=4096, balanced=True),
    best=2.897,
    tied={
        "expert parallel + FSDP": 2.907,
        "pipeline + expert parallel": 2.913,
        "pipeline + expert parallel + FSDP": 2.998,
        "tensor parallel + expert parallel": 3.064,
        "pipeline + tensor parallel + expert parallel": 3.072,
        "tensor parallel + expert parallel + FSDP": 3.104,
    },
    published=PublishedRun(
        MEGATRON_CORE_MOE,
        "NVIDIA's reference for Megatron Core has pp 4, ep 8 and 8 chunks",
        Split(dp=16, pp=4, ep=8, schedule="interleaved", chunks=8),
        seconds=2.791,
        predicted=3.040,
    ),
    statement="""\
Mixtral has 8 experts in each layer, and a token goes to two of them. 45 of its 47 billion parameters are experts.
With expert parallelism (`ep`) the ranks of a group hold different experts, and tokens travel: an all-to-all before
the experts and one after them, in every layer, forward and backward. `ep` takes adjacent ranks along `tp`, `cp` and
`dp`, so it divides their product, and the number of GPUs stays `dp * tp * pp`. As in NVIDIA's benchmark, routing is
forced to be even.

Without `ep` every replica needs all experts. Decide how many ranks share them, and where these ranks are.
""",
    starter='''\
def mixtral_64(job: Job) -> Split:
    """Mixtral 8x7B on 64 H100, 8 machines."""
    # ----- your code -----
    # return Split(dp=..., ep=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "What does FSDP gather for each microbatch if `ep` is 1? Compare 45 billion weights with the tokens "
        "of one microbatch.",
        "An all-to-all among 8 ranks stays inside a machine only if these ranks are neighbors: `ep` is next "
        "to `tp`, so with tp 1 the 8 GPUs of a machine hold the 8 experts.",
        "`return Split(dp=64, ep=8)`.",
    ),
    concept="""\
Experts have many weights, and each weight has little work. So move the tokens to the weights, over the fastest link.
Each of 4 sequences needs 4 all-to-alls in each of 32 layers, 512 in all, and each has 0.3 ms besides its bytes. By
hand, for ep 8:

    experts             32 * 8 * 3 * 4096 * 14336 = 4.51e10 parameters
    bytes of a GPU      ((1.6e9 + 45.1e9 / 8) * 6 + 46.7e9 / 64 * 12) / 2**30 = 48.6 GiB, with ZeRO 1
    activations         32 * 4096 * 225280 / 2**30 = 27.5 GiB for one sequence
    flops               256 * 4096 * 6 * 12.7e9 * 1.05 / (64 * 989e12) = 1.33 s at the full rate
    tokens              512 * (4096 * 4096 * 2 * 2 * 7/8 / (450e9 * 0.8) + 0.0003) = 0.237 s of all-to-alls on NVLink
    weights with FSDP   4 * 2 * 45.1e9 * 2 / (8 * 50e9 * 0.8) = 2.25 s of gathering over the network, without ep
""",
    in_practice="""\
Megatron Core's own reference keeps the 8 experts in a machine as well (ep 8), with a pipeline of 4 stages. It takes 5 %
longer than the best here, a difference that the model cannot resolve. GShard (Lepikhin et al. 2020) spread its
experts over all devices, which paid off because there were thousands of them.
""",
    sources=(GSHARD, MEGATRON_CORE_MOE, MIXTRAL),
)
