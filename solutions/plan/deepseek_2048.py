"""Experts on four machines, whose tokens travel during computation; a shallow pipeline of many chunks."""

from lib.planning import Job, Prediction, Split


def deepseek_2048(job: Job) -> tuple[Split, Prediction]:
    split = Split(dp=256, pp=4, ep=32, tp=2, schedule="interleaved", chunks=8)
    return split, Prediction(gib=80, dominates="ep")
