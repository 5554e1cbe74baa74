"""A short interleaved pipeline, and half of each layer's operations again."""

from lib.planning import Job, Prediction, Split


def llama_70b_40gb(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=2, pp=4, tp=8, schedule="interleaved", chunks=5, recompute="ops"), Prediction(
        gib=38, dominates="tp"
    )
