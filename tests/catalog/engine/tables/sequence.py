"""Chapter `sequence`: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "RingAttention": {"sent": 3_120, "messages": 3, "collectives": 0, "flops": 17_728, "peak": 4_224},
}

COMPUTE = """        scores = np.where(mask, self.q @ k.T * self.q.shape[1] ** -0.5, -np.inf)
        before, self.highest = self.highest, np.maximum(self.highest, scores.max(axis=1, keepdims=True))
        powers, shrunk = np.exp(scores - self.highest), np.exp(before - self.highest)
        self.total = self.total * shrunk + powers.sum(axis=1, keepdims=True)
        self.mixed = self.mixed * shrunk + powers @ v
"""
CAUSAL = "failed: tried with causal True: device 0, forward() differs"

WRONG = {
    ("RingAttention", "own tokens only"): (
        "for hop in range(n):",
        "for hop in range(n := 1):",
        "failed: device 0, forward() differs ... is this the attention over your own tokens only?",
    ),
    ("RingAttention", "never corrected"): (
        "self.mixed * shrunk + powers @ v",
        "self.mixed + powers @ v",
        "failed: device 0, forward() differs",
    ),
    ("RingAttention", "the average of the blocks"): (
        COMPUTE,
        "        scores = np.where(mask, self.q @ k.T * self.q.shape[1] ** -0.5, -np.inf)\n"
        "        powers = np.exp(scores - scores.max(axis=1, keepdims=True))\n"
        "        self.mixed = self.mixed + powers / powers.sum(axis=1, keepdims=True) @ v\n"
        "        self.total = self.total + 1\n",
        "failed: device 0, forward() differs ... did you average the blocks' results?",
    ),
    ("RingAttention", "a hop too many"): (
        "if hop < n - 1:",
        "if True:",
        "over_target: correct, but bytes sent 4,160, and the target is 3,120; and messages sent 4, and the target is 3",
    ),
    ("RingAttention", "blocks kept"): (
        "            for place, k, v in",
        "            x.setdefault('seen', []).append(kv)\n            for place, k, v in",
        "over_target: correct, but peak bytes 7,296, and the target is 5,248",
    ),
    ("RingAttention", "products by broadcasting"): (
        COMPUTE,
        COMPUTE.replace("self.q @ k.T", "(self.q[:, None] * k).sum(axis=2)").replace(
            "powers @ v", "(powers[:, :, None] * v).sum(axis=1)"
        ),
        "over_target: correct, but peak bytes 7,808, and the target is 5,248",
    ),
    ("RingAttention", "everybody waits"): (
        "self.send((me + 1) % n, kv)",
        "self.receive((me - 1) % n)",
        "failed: nobody can move: device 0 waits in receive(3)",
    ),
    ("RingAttention", "no mask"): (
        "self.causal = causal",
        "self.causal = False",
        f"{CAUSAL} ... does a token see later tokens?",
    ),
    ("RingAttention", "masked, but computed"): (
        "                    elif place == chunk.place:\n",
        "                    elif place > chunk.place:\n                        chunk.q @ k.T\n"
        "                    else:\n",
        "over_target: correct, but tried with causal True: flops ",
    ),
    ("RingAttention", "full chunks, no mask within"): (
        "chunk.see(k, v, np.tri(len(k), dtype=bool))",
        "chunk.see(k, v)",
        CAUSAL,
    ),
    ("RingAttention", "tokens taken to be in order"): (
        "(device, 2 * self.num_devices - 1 - device)",
        "(2 * device, 2 * device + 1)",
        CAUSAL,
    ),
    ("RingAttention", "four devices taken for granted"): (
        "2 * self.num_devices - 1 - device",
        "7 - device",
        "failed: tried with 8 devices, causal True: device 0, forward() differs",
    ),
}
