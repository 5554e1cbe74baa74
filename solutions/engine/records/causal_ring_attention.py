"""Causal ring attention one query at a time. A query meets whole chunks, so a mask remains within its own."""

import numpy as np

from solutions.engine.records.ring_attention import RingAttention


class CausalRingAttention(RingAttention):
    def forward(self, x):
        n, me = self.num_devices, self.device_id
        q, kv = x["q"], x.pop("kv")
        highest = np.full(len(q), -np.inf, dtype=np.float32)
        total, mixed = np.zeros_like(highest), np.zeros_like(q)
        for hop in range(n):
            if hop < n - 1:
                self.send((me + 1) % n, kv)
            self.see((me - hop) % n, q, kv, highest, total, mixed)
            if hop < n - 1:
                del kv
                kv = self.receive((me - 1) % n)
        mixed /= total[:, None]
        return mixed

    def see(self, source, q, kv, highest, total, mixed):
        """Shows every query the tokens of a device that are not later than it."""
        chunk = len(q) // 2
        theirs, mine = self.places(source), self.places(self.device_id)
        for i in range(len(q)):
            for half, place in enumerate(theirs):
                own = mine[i // chunk]
                seen = chunk if place < own else i % chunk + 1 if place == own else 0
                if seen:
                    tokens = slice(half * chunk, half * chunk + seen)
                    self.correct(i, q, kv[:, tokens], highest, total, mixed)

    def places(self, device):
        """Positions of a device's two chunks in the sequence."""
        return device, 2 * self.num_devices - 1 - device
