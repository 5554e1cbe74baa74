"""A machine holds the eight experts of each layer, one on each GPU."""

from lib.planning import Job, Prediction, Split


def mixtral_64(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=64, ep=8), Prediction(gib=77, dominates="ep")
