"""Cross entropy without a common maximum: the log of its own sum is what a device tells of a token, to one that adds
up the token's and tells all."""

import numpy as np

from lib.engine import ShardedEngine


class VocabParallelLoss(ShardedEngine):
    def __init__(self, words):
        each = words // self.num_devices
        self.words = slice(self.device_id * each, (self.device_id + 1) * each)
        self.tape = []

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        logits, targets = x["logits"], x["targets"]
        # A word's place here, for each token whose right word is here.
        places = [(i, int(word) - self.words.start) for i, word in enumerate(targets)]
        places = [(i, place) for i, place in places if 0 <= place < logits.shape[1]]
        told = np.zeros((len(logits), 2), dtype=np.float32)
        for i, place in places:
            told[i, 1] = logits[i, place]
        for i, row in enumerate(logits):
            told[i, 0] = log_of_sum(row)
        told = self.all_to_all(told).reshape(self.num_devices, -1, 2)
        for i in range(told.shape[1]):
            told[0, i] = log_of_sum(told[:, i, 0]), told[:, i, 1].sum()
        told = self.all_gather(told[0])
        self.tape.append((logits, told[:, 0], places))
        return told[:, 0] - told[:, 1]

    def backward(self, grads):
        logits, logs, places = self.tape.pop()
        logits -= logs[:, None]
        np.exp(logits, out=logits)
        for i, place in places:
            logits[i, place] -= 1
        logits *= grads[:, None]
        return {"logits": logits}


def log_of_sum(logits):
    highest = logits.max()
    return highest + np.log(np.exp(logits - highest).sum())
