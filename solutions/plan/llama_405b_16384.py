"""What Meta ran: 128 stages, so that the bubble is short; gradients in shards."""

from lib.planning import Job, Prediction, Split


def llama_405b_16384(job: Job) -> tuple[Split, Prediction]:
    split = Split(dp=128, pp=16, tp=8, zero=2, schedule="interleaved", chunks=8)
    return split, Prediction(gib=71, dominates="tp")
