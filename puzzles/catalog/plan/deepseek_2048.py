"""Plan puzzle 9: everything at once."""

from lib.planning import Job, gpu, transformer
from puzzles.catalog.papers import DEEPSEEK_V3, GSHARD, SEQUENCE_PARALLELISM

from .puzzle import PlanPuzzle, PublishedRun

PUZZLE = PlanPuzzle(
    slug="deepseek_2048",
    title="DeepSeek-V3 on 2,048 H800",
    job=Job(transformer("deepseek-v3"), gpu("h800"), gpus=2048, batch=3072, sequence=4096, fp8=True),
    best=3.752,
    published=PublishedRun(
        DEEPSEEK_V3,
        "DeepSeek-AI trained it with pp 16 and ep 64 on 8 machines. For this step the model takes that split for 2.5 "
        "times as slow as the best: their all-to-alls run in 8 bits, reach at most 4 machines, and are hidden by "
        "DualPipe, which this model does not know",
    ),
    statement="""\
The model has 671 billion parameters, of which a token uses 37 billion: each layer has 256 experts, and a token goes to
8 of them. 61 layers do not divide evenly into stages, so the planner divides them as evenly as possible. NVLink is less
than half as fast on an H800 as on an H100. The step is from the beginning of the training, when the batch was 3,072
sequences; it grew to 15,360 later.

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
        "A token goes to 8 experts. With ep 64 most of them are in other machines, and the all-to-alls take "
        "most of the time.",
        "Keep the experts inside a machine: ep times tp is at most 8. A pipeline of 16 stages makes room for them.",
        "48 microbatches in 16 stages have a bubble of a quarter of the time with 1F1B. 61 layers cannot be "
        "interleaved evenly, but `zb_h1` fills the bubble with weight gradients.",
        "`return Split(dp=64, pp=16, ep=4, tp=2, schedule='zb_h1')` has two stars. Sequence parallelism "
        "gathers and scatters more often; `sp=False` earns the third.",
    ),
    concept="""\
Experts are 97 % of the weights. If they stay inside a machine, they fit only with a pipeline. By hand, for pp 16, ep 4,
tp 2, dp 64:

    experts          58 * 256 * 3 * 7168 * 2048 = 6.54e11 parameters
    bytes of a GPU   ((6.54e11 / 4 + 0.17e11) / 32 * 6 + 6.71e11 / 2048 * 12) / 2**30 = 35.2 GiB, with ZeRO 1
    microbatches     3072 / 64 = 48 of a replica
    bubble           15 / (48 + 15) * 100 = 23.8 % with 1F1B
    tokens           58 / 16 * 48 * 4096 * 7168 * 8 * 2 * 3/4 * 4 / 2 / (200e9 * 0.8) = 0.766 s of all-to-alls on NVLink
    flops            3072 * 4096 * 6 * 36.6e9 * 1.11 / (2048 * 1979e12) = 0.757 s at the full rate
""",
    in_practice="""\
DeepSeek-AI (2024) sent each token to at most 4 machines, in 8 bits, and overlapped the all-to-alls of one
microbatch with the computation of another (DualPipe). That made ep 64 possible, with no tensor parallelism at all.
Where the model and the published run disagree this much, trust the run.
""",
    sources=(DEEPSEEK_V3, GSHARD, SEQUENCE_PARALLELISM),
)
