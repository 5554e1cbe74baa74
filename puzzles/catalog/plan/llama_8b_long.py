"""Plan puzzle 5: why context parallelism exists."""

from lib.planning import Job, gpu, transformer
from puzzles.catalog.papers import LLAMA_3, RING_ATTENTION

from .puzzle import PlanPuzzle, PublishedRun

PUZZLE = PlanPuzzle(
    slug="llama_8b_long",
    title="Sequences of 131,072 tokens",
    job=Job(transformer("llama-3-8b"), gpu("h100"), gpus=128, batch=8, sequence=131072),
    best=3.039,
    tied={
        "tensor parallel + context parallel": 3.06,
        "context parallel + FSDP": 3.087,
        "tensor parallel + context parallel + FSDP": 3.093,
        "context parallel + HSDP": 3.099,
        "tensor parallel + context parallel + HSDP": 3.1,
        "pipeline + context parallel": 3.19,
        "pipeline + tensor parallel + context parallel": 3.219,
        "pipeline + context parallel + FSDP": 3.25,
        "pipeline + tensor parallel + context parallel + FSDP": 3.27,
        "pipeline + context parallel + HSDP": 3.273,
        "pipeline + tensor parallel + context parallel + HSDP": 3.278,
    },
    published=PublishedRun(
        LLAMA_3, "For 131,072 tokens Meta trained Llama 3 405B with cp 16 inside tp 8 and pp 16, on 16,384 GPUs"
    ),
    statement="""\
You have 128 GPUs, and a step has only 8 sequences, each of 131,072 tokens. There cannot be more than 8 replicas, so 16
GPUs must share a sequence. The activations of one sequence take far more memory than one GPU has.

Context parallelism (`cp`) splits the tokens of a sequence. Every rank computes with all weights on its own tokens;
only attention needs the other tokens, so keys and values pass around a ring while it computes. Compare that with tensor
parallelism, which would have to leave the machine.
""",
    starter='''\
def llama_8b_long(job: Job) -> Split:
    """Llama 3 8B on 128 H100, 8 sequences of 131,072 tokens."""
    # ----- your code -----
    # return Split(dp=8, cp=..., tp=..., zero=...), Prediction(gib=..., dominates="...")

    # ----- end of your code -----
''',
    hints=(
        "dp is at most 8. The other 16 GPUs of a replica are along tp, cp or pp. Which of these can cross machines?",
        "A ring sends keys and values: 4 kB of a token and layer, since there are only 8 heads of them. "
        "Tensor parallelism sends activations of 8 kB four times.",
        "Attention is 70 % of the flops here, and it hides the ring.",
        "`return Split(dp=8, cp=16)`.",
    ),
    concept="""\
With few long sequences, only tokens are left to split. Context parallelism sends only keys and values. Attention grows
with the square of the tokens, so it hides these messages. By hand, for cp 16:

    activations      32 * 131072 * 139264 / 2**30 = 544 GiB for one sequence on one GPU
    with cp 16       32 * 131072 / 16 * 139264 / 2**30 = 34 GiB
    attention        6 * 131072 / 2 * 2 * 4096 * 32 / (6 * 7.5e9) = 2.29 times the flops of the weights
    flops            8 * 131072 * 6 * 7.5e9 * 3.29 / (128 * 989e12) = 1.23 s at the full rate
    ring             32 * 3 * 131072 * 4096 * 15/16 / (50e9 * 8 * 0.8) = 0.151 s, behind attention
    bytes of a GPU   8.03e9 * (2 + 4 + 12 / 128) / 2**30 = 45.6 GiB, with ZeRO 1
""",
    in_practice="""\
Llama 3 was trained on 131,072 tokens with cp 16 in its last stage (Dubey et al. 2024). Ring attention (Liu et al.
2023) is the method; a causal mask makes the work of the ranks uneven, unless tokens are assigned in zigzag.
""",
    sources=(LLAMA_3, RING_ATTENTION),
)
