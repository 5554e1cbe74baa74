"""Chapter `experts`: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "SwitchDispatch": {"sent": 768, "flops": 34_080, "weights": 8_448},
    "BalanceLoss": {"sent": 48, "collectives": 1},
    "GShardTop2": {"sent": 1_536, "flops": 67_112, "weights": 8_448},
    "ExactDispatch": {
        "sent": 1_056,
        "messages": 4,
        "receives": 0,
        "collectives": 1,
        "barriers": 2,
        "flops": 42_304,
        "weights": 11_008,
    },
    "FindTheRace": {
        "sent": 1_080,
        "messages": 4,
        "receives": 0,
        "collectives": 2,
        "barriers": 2,
        "flops": 42_312,
        "weights": 11_008,
    },
}

DIFFERS = "failed: device 0, forward() differs from what a single device computes: at ["
OUT_DIFFERS = "failed: device 0, forward(), 'out' differs from what a single device computes: at ["

PUTS = """\
        rows = x[order]
        for e in range(n):
            count = counts[me, e]
            self.put(rows[home[me, e] :][:count], self.inbox[at[me, e] :][:count], e)
        # The mean probabilities that the balance loss asks for.
        share = self.all_reduce(p.sum(axis=0)) / counts.sum(dtype=p.dtype)
        self.barrier()
"""
MOVED = "        self.barrier()\n" + PUTS.replace("        self.barrier()\n", "")

WRONG = {
    ("SwitchDispatch", "not scaled"): (
        "p[tokens, chosen][fits, None] * back",
        "back",
        OUT_DIFFERS,
    ),
    ("SwitchDispatch", "overflow lost"): (
        "        x[fits] += p",
        "        x *= fits[:, None]\n        x[fits] += p",
        OUT_DIFFERS,
    ),
    ("SwitchDispatch", "capacity rounded down"): (
        "capacity = ceil(",
        "capacity = int(",
        "failed: tried with factor 1.25: device 0, forward(), 'out' differs",
    ),
    ("SwitchDispatch", "room for all tokens"): (
        "len(x) / experts * self.factor",
        "len(x)",
        OUT_DIFFERS,
    ),
    ("SwitchDispatch", "a place counted from 1"): (
        "cumsum(axis=0) - 1",
        "cumsum(axis=0)",
        OUT_DIFFERS,
    ),
    ("SwitchDispatch", "the last come are served"): (
        "before[tokens, chosen]",
        "(before[-1] - before)[tokens, chosen]",
        OUT_DIFFERS,
    ),
    ("SwitchDispatch", "everything gathered"): (
        "rows = self.all_to_all(buffer)",
        "rows = self.all_gather(buffer[None])[:, self.device_id]",
        "over_target: correct, but bytes sent 1,920, and the target is 768",
    ),
    ("SwitchDispatch", "results stay where they are"): (
        "back = self.all_to_all(relu(rows @ self.w0) @ self.w1)",
        "back = relu(rows @ self.w0) @ self.w1",
        OUT_DIFFERS,
    ),
    ("BalanceLoss", "local losses averaged"): (
        "        return (weight * mean).sum(keepdims=True)",
        "        own = experts * chosen / len(p) * p.mean(axis=0)\n"
        "        return self.alpha * self.all_reduce(own.sum(keepdims=True), 'avg')",
        DIFFERS,
    ),
    ("BalanceLoss", "nothing reduced"): (
        "self.all_reduce(np.stack([chosen.astype(p.dtype), p.sum(axis=0)]))",
        "np.stack([chosen.astype(p.dtype), p.sum(axis=0)])",
        DIFFERS,
    ),
    ("BalanceLoss", "no N"): (
        "self.alpha * experts * f",
        "self.alpha * f",
        DIFFERS,
    ),
    ("BalanceLoss", "as many tokens everywhere"): (
        "sums[0].sum()",
        "len(p) * self.num_devices",
        "failed: tried with alpha 2.0: device 0, forward() differs",
    ),
    ("BalanceLoss", "as many experts as devices"): (
        "experts = p.shape[1]",
        "experts = self.num_devices",
        DIFFERS,
    ),
    ("BalanceLoss", "the incoming gradient forgotten"): (
        "dp = grads * dp",
        "dp = dp",
        "failed: device 0, backward(), 'logits' differs from what a single device computes: at [",
    ),
    ("BalanceLoss", "in double precision"): (
        "chosen.astype(p.dtype)",
        "chosen",
        "over_target: correct, but bytes sent 192, and the target is 48",
    ),
    ("BalanceLoss", "two calls"): (
        "self.all_reduce(np.stack([chosen.astype(p.dtype), p.sum(axis=0)]))",
        "np.stack([self.all_reduce(chosen.astype(p.dtype)), self.all_reduce(p.sum(axis=0))])",
        "over_target: correct, but collective calls 2, and the target is 1",
    ),
    ("BalanceLoss", "all probabilities gathered"): (
        "        p = softmax(logits)\n",
        "        self.all_gather(logits[:1])\n        p = softmax(logits)\n",
        "over_target: correct, but bytes sent 96, and the target is 48",
    ),
    ("GShardTop2", "gates not normalized"): (
        "g1, g2 = g1 / (g1 + g2), g2 / (g1 + g2)",
        "pass",
        OUT_DIFFERS,
    ),
    ("GShardTop2", "second choices counted from 0"): (
        "place2 = counted[len(x) + tokens, second] - 1",
        "place2 = (counted[len(x) + tokens] - counts)[tokens, second] - 1",
        OUT_DIFFERS,
    ),
    ("GShardTop2", "both choices at once"): (
        "place2 = counted[len(x) + tokens, second] - 1",
        "both = (one_hot[first] + one_hot[second]).cumsum(axis=0)\n"
        "        place1, place2 = both[tokens, first] - 1, both[tokens, second] - 1",
        "failed: device 2, forward(), 'out' differs from what a single device computes: at [",
    ),
    ("GShardTop2", "the refused are not counted"): (
        "counted = one_hot[np.concatenate([first, second])].cumsum(axis=0)",
        "counted = np.concatenate([one_hot[first], one_hot[second] * (2 * g2 > rnd)[:, None]]).cumsum(axis=0)",
        "failed: tried with capacity 2: device 3, forward(), 'out' differs from what a single device computes: at [",
    ),
    ("GShardTop2", "the coin is not doubled"): (
        "(2 * g2 > rnd)",
        "(g2 > rnd)",
        OUT_DIFFERS,
    ),
    ("GShardTop2", "the second always"): (
        " & (2 * g2 > rnd)",
        "",
        OUT_DIFFERS,
    ),
    ("GShardTop2", "two round trips"): (
        "rows = self.all_to_all(buffer)",
        "rows = self.all_to_all(self.all_to_all(self.all_to_all(buffer)))",
        "over_target: correct, but bytes sent 3,072, and the target is 1,536",
    ),
    ("ExactDispatch", "rows read too early"): (
        "        self.barrier()\n        made",
        "        made",
        DIFFERS,
    ),
    ("ExactDispatch", "results read too early"): (
        "        self.barrier()\n        x[",
        "        x[",
        DIFFERS,
    ),
    ("ExactDispatch", "still sorted"): (
        "x[order] += p",
        "x += p",
        DIFFERS,
    ),
    ("ExactDispatch", "not scaled"): (
        "p.max(axis=1)[order, None] * self.back",
        "self.back",
        DIFFERS,
    ),
    ("ExactDispatch", "one buffer for both ways"): (
        "self.back = self.symmetric((tokens, model_dim))",
        "self.back = self.inbox[:tokens]",
        DIFFERS,
    ),
    ("ExactDispatch", "a message for each row"): (
        "self.send_async(rows, place, device)",
        "[self.send_async(row, place[i], device) for i, row in enumerate(rows)]",
        "over_target: correct, but bytes sent 1,104, and the target is 1,056; and messages sent 14, and the target "
        "is 4",
    ),
    ("ExactDispatch", "gathered as well"): (
        "rows = x[order]",
        "rows = np.split(self.all_gather(x[order]), n)[me]",
        "over_target: correct, but bytes sent 2,592, and the target is 1,056; and collective calls 2, and the "
        "target is 1",
    ),
    ("ExactDispatch", "a barrier for each device"): (
        "            self.put(rows[home",
        "            self.barrier()\n            self.put(rows[home",
        "over_target: correct, but barriers 6, and the target is 2",
    ),
    ("ExactDispatch", "sent and received"): (
        "    def put(self, rows, place, device):\n",
        "    def put(self, rows, place, device):\n"
        "        self.send((self.device_id + 1) % 4, rows[:0])\n"
        "        self.receive((self.device_id - 1) % 4)\n",
        "over_target: correct, but bytes sent 1,184, and the target is 1,056; and messages sent 12, and the target is "
        "4; and messages received 8, and the target is 0",
    ),
    ("ExactDispatch", "all padding multiplied"): (
        "self.inbox[: counts[:, me].sum()]",
        "self.inbox",
        "over_target: correct, but flops 132,416, and the target is 42,304",
    ),
    ("FindTheRace", "the starter as it is"): (
        "        self.barrier()\n        made",
        "        made",
        "failed: device 2, forward(), 'out' differs from what a single device computes: at [",
    ),
    ("FindTheRace", "another sum to wait for"): (
        "        self.barrier()\n        made",
        "        self.all_reduce(np.zeros(1))\n        made",
        "failed: device 2, forward(), 'out' differs from what a single device computes: at [",
    ),
    ("FindTheRace", "the barrier before the puts"): (
        PUTS,
        MOVED,
        "failed: device 2, forward(), 'out' differs from what a single device computes: at [",
    ),
    ("FindTheRace", "the barrier too late"): (
        "        self.barrier()\n        made = np.maximum(self.inbox[: counts[:, me].sum()] @ self.w0, 0) @ self.w1\n",
        "        made = np.maximum(self.inbox[: counts[:, me].sum()] @ self.w0, 0) @ self.w1\n        self.barrier()\n",
        "failed: device 2, forward(), 'out' differs from what a single device computes: at [",
    ),
    ("FindTheRace", "barriers everywhere"): (
        "        self.barrier()\n        made",
        "        self.barrier()\n        self.barrier()\n        made",
        "over_target: correct, but barriers 3, and the target is 2",
    ),
}
