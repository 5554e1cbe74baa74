"""Plan puzzle 9: everything at once."""

from lib.planning import Job, gpu, transformer
from puzzles.catalog.papers import DEEPSEEK_V3, GSHARD, SEQUENCE_PARALLELISM

from .puzzle import PlanPuzzle, PublishedRun

PUZZLE = PlanPuzzle(
    slug="deepseek_2048",
    title="DeepSeek-V3 on 2,048 H800",
    job=Job(
        transformer("deepseek-v3"),
        gpu("h800"),
        gpus=2048,
        batch=3072,
        sequence=4096,
        fp8=True,
        dispatch="dedup",
        ep_overlap=True,
    ),
    best=4.745,
    target=5.35,
    published=PublishedRun(
        DEEPSEEK_V3,
        "DeepSeek-AI trained it with pp 16 and ep 64 on 8 machines, without tensor parallelism. For this step the best "
        "split of that kind takes 11 % longer here than the best known, and has two stars",
    ),
    statement="""\
The model has 671 billion parameters, of which a token uses 37 billion: each layer has 256 experts, and a token goes
to 8 of them, which are in 4 of 8 groups. As DeepSeek-AI did, a token is sent once to each machine that has some of
its experts, and the all-to-alls of one microbatch overlap with the computation of another. 61 layers do not divide
evenly into stages, so the planner divides them as evenly as possible. NVLink is less than half as fast on an H800 as
on an H100. The step is from the beginning of the training, when the batch was 3,072 sequences; it grew to 15,360
later.

Combine what you have learned. Which ranks share the experts and the tensors? What crosses the network? How many
microbatches are left for the pipeline?
""",
    starter='''\
def deepseek_2048(job: Job) -> Split:
    """DeepSeek-V3 on 2,048 H800 in 8 bits."""
    # ----- your code -----
    # return Split(dp=..., pp=..., ep=..., tp=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "With ep 4 a rank reads the weights of 64 experts in each layer, and adds up their gradients, for every "
        "microbatch; and they do not fit. More ranks that share the experts have fewer each.",
        "A token reaches 3 of 4 machines on average with ep 32, however many experts it has there. Most of the time of "
        "the all-to-alls is hidden by computation.",
        "With ep 32 and tp 2 a pipeline of 4 stages is enough. 12 microbatches in 4 stages have a bubble of a fifth of "
        "the time with 1F1B; chunks of `interleaved` make it smaller.",
        "`return Split(dp=256, pp=4, ep=32, tp=2, schedule='interleaved', chunks=8)`.",
    ),
    concept="""\
Experts are 97 % of the weights. A token is sent once to each machine, while the rank computes; so experts that four
machines share cost less than a deep pipeline. By hand, for pp 4 with 8 chunks, ep 32, tp 2, dp 256:

    experts          58 * 256 * 3 * 7168 * 2048 = 6.54e11 parameters
    bytes of a GPU   ((6.54e11 / 32 + 0.17e11 / 2) / 4 * 6 + 6.71e11 / 2048 * 12) / 2**30 = 44.1 GiB, with ZeRO 1
    microbatches     3072 / 256 = 12 of a replica
    bubble           3 / (12 * 8 + 3) * 100 = 3.03 % with 8 chunks, and 20 % with 1F1B
    tokens           58 / 4 * 12 * 4 * (2048 * 1.5 * 2.25 * 7168 * 2 / (50e9 * 0.8) + 0.0003) = 1.93 s of all-to-alls
    flops            3072 * 4096 * 6 * 36.6e9 * 1.14 / (2048 * 1979e12) = 0.778 s at the full rate
""",
    in_practice="""\
DeepSeek-AI (2024) sent each token to at most 4 machines, in 8 bits, and overlapped the all-to-alls of one microbatch
with the computation of another (DualPipe). That made ep 64 possible, with no tensor parallelism at all. Such a split
has most of its losses from uneven routing and the bubble here. The planner sends tokens in 16 bits, so it takes ep 32
for faster; a difference of 11 % is about twice its usual error for models with experts (docs/truth.md).
""",
    sources=(DEEPSEEK_V3, GSHARD, SEQUENCE_PARALLELISM),
)
