"""An interleaved pipeline across machines, so that the network carries activations only."""

from lib.planning import Job, Prediction, Split


def llama_70b_256(job: Job) -> tuple[Split, Prediction]:
    return Split(dp=8, pp=8, tp=4, schedule="interleaved", chunks=6), Prediction(gib=62, dominates="bubble")
