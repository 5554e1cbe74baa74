"""No recomputation: a zero-bubble V holds no more than 1F1B."""

from lib.planning import Job, Prediction, Split


def llama_405b_1024(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=8, pp=16, tp=8, schedule="zb_v", chunks=2), Prediction(gib=75, dominates="tp")
