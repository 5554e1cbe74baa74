"""Chapter `sequence`: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "RingAttention": {"sent": 3_120, "messages": 3, "collectives": 0, "flops": 17_728, "peak": 4_224},
    "CausalRingAttention": {"sent": 3_120, "messages": 3, "collectives": 0, "flops": 10_696, "peak": 3_136},
}

WRONG = {
    ("RingAttention", "own tokens only"): (
        "for hop in range(n):",
        "for hop in range(n := 1):",
        "failed: device 0, forward() differs ... is this the attention over your own tokens only?",
    ),
    ("RingAttention", "never corrected"): (
        "mixed * shrunk + powers @ v",
        "mixed + powers @ v",
        "failed: device 0, forward() differs",
    ),
    ("RingAttention", "the average of the blocks"): (
        "            powers, shrunk = np.exp(scores - highest), np.exp(before - highest)\n"
        "            total = total * shrunk + powers.sum(axis=1, keepdims=True)\n"
        "            mixed = mixed * shrunk + powers @ v\n",
        "            powers = np.exp(scores - scores.max(axis=1, keepdims=True))\n"
        "            mixed, total = mixed + powers / powers.sum(axis=1, keepdims=True) @ v, total + 1\n",
        "failed: device 0, forward() differs ... did you average the blocks' results?",
    ),
    ("RingAttention", "a hop too many"): (
        "if hop < n - 1:",
        "if True:",
        "over_target: correct, but bytes sent 4,160, and the target is 3,120; and messages sent 4, and the target is 3",
    ),
    ("RingAttention", "blocks kept"): (
        "            k, v = kv\n",
        "            x.setdefault('seen', []).append(kv)\n            k, v = kv\n",
        "over_target: correct, but peak bytes 7,296, and the target is 5,248",
    ),
    ("RingAttention", "products by broadcasting"): (
        "            scores = q @ k.T * q.shape[1] ** -0.5\n"
        "            before, highest = highest, np.maximum(highest, scores.max(axis=1, keepdims=True))\n"
        "            powers, shrunk = np.exp(scores - highest), np.exp(before - highest)\n"
        "            total = total * shrunk + powers.sum(axis=1, keepdims=True)\n"
        "            mixed = mixed * shrunk + powers @ v\n",
        "            scores = (q[:, None] * k).sum(axis=2) * q.shape[1] ** -0.5\n"
        "            before, highest = highest, np.maximum(highest, scores.max(axis=1, keepdims=True))\n"
        "            powers, shrunk = np.exp(scores - highest), np.exp(before - highest)\n"
        "            total = total * shrunk + powers.sum(axis=1, keepdims=True)\n"
        "            mixed = mixed * shrunk + (powers[:, :, None] * v).sum(axis=1)\n",
        "over_target: correct, but peak bytes 7,808, and the target is 5,248",
    ),
    ("RingAttention", "everybody waits"): (
        "self.send((me + 1) % n, kv)",
        "self.receive((me - 1) % n)",
        "failed: line 8: nobody can move: device 0 waits in receive(3)",
    ),
    ("CausalRingAttention", "nothing masked"): (
        "        if place > self.place:\n            return  # these keys all come later\n        scores = self.q @ "
        "k.T * self.q.shape[1] ** -0.5\n        if place == self.place:\n",
        "        scores = self.q @ k.T * self.q.shape[1] ** -0.5\n        if False:\n",
        "failed: device 0, forward() differs ... does a token see later tokens?",
    ),
    ("CausalRingAttention", "masked, but computed"): (
        "        if place > self.place:\n            return  # these keys all come later\n        scores = self.q @ "
        "k.T * self.q.shape[1] ** -0.5\n",
        "        scores = self.q @ k.T * self.q.shape[1] ** -0.5\n        if place > self.place:\n            return\n",
        "over_target: correct, but flops ",
    ),
    ("CausalRingAttention", "whole chunks, no mask within"): (
        "if place == self.place:",
        "if False:",
        "failed: device 0, forward() differs",
    ),
    ("CausalRingAttention", "tokens taken to be in order"): (
        "return device, 2 * self.num_devices - 1 - device",
        "return 2 * device, 2 * device + 1",
        "failed: device 0, forward() differs",
    ),
    ("CausalRingAttention", "four devices taken for granted"): (
        "2 * self.num_devices - 1 - device",
        "7 - device",
        "failed: tried with 8 devices: device 0, forward() differs",
    ),
}
