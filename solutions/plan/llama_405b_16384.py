"""What Meta ran: 128 stages, so that the bubble is short."""

from lib.planning import Job, Prediction, Split


def llama_405b_16384(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=128, pp=16, tp=8, schedule="interleaved", chunks=8), Prediction(gib=71, dominates="tp")
