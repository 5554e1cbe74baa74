"""Experts and tensor parallelism share a machine; a zero-bubble pipeline makes room."""

from lib.planning import Job, Prediction, Split


def deepseek_2048(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=64, pp=16, ep=4, tp=2, sp=False, schedule="zb_h1"), Prediction(gib=74, dominates="ep")
