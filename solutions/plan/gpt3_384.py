"""Tensor parallelism in half a machine, a short interleaved pipeline, the rest replicas."""

from lib.planning import Job, Prediction, Split


def gpt3_384(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=16, pp=6, tp=4, schedule="interleaved", chunks=4), Prediction(gib=70, dominates="tp")
