"""Causal ring attention: an early and a late chunk on each device give all devices the same number of blocks."""

import numpy as np

from lib.engine import ShardedEngine


class CausalRingAttention(ShardedEngine):
    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        n, me = self.num_devices, self.device_id
        kv = x.pop("kv")
        queries = [Queries(q, place) for q, place in zip(np.split(x["q"], 2), self.places(me))]
        for hop in range(n):
            if hop < n - 1:
                self.send((me + 1) % n, kv)
            for place, k, v in zip(self.places((me - hop) % n), *(np.split(part, 2) for part in kv)):
                for chunk in queries:
                    chunk.see(place, k, v)
            if hop < n - 1:
                kv = self.receive((me - 1) % n)
        return np.concatenate([chunk.mixed / chunk.total for chunk in queries])

    def backward(self, grads):
        """Not called."""

    def places(self, device):
        """Positions of a device's two chunks in the sequence."""
        return device, 2 * self.num_devices - 1 - device


class Queries:
    """A chunk of queries, and its softmax and output over the keys and values seen so far."""

    def __init__(self, q, place):
        self.q, self.place = q, place
        self.highest = np.full((len(q), 1), -np.inf, dtype=np.float32)
        self.total, self.mixed = np.zeros_like(self.highest), np.zeros_like(q)

    def see(self, place, k, v):
        if place > self.place:
            return  # these keys all come later
        scores = self.q @ k.T * self.q.shape[1] ** -0.5
        if place == self.place:
            scores = np.where(np.tri(len(k), dtype=bool), scores, -np.inf)
        before, self.highest = self.highest, np.maximum(self.highest, scores.max(axis=1, keepdims=True))
        powers, shrunk = np.exp(scores - self.highest), np.exp(before - self.highest)
        self.total = self.total * shrunk + powers.sum(axis=1, keepdims=True)
        self.mixed = self.mixed * shrunk + powers @ v
