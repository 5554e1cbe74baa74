"""First mistakes in classes, layouts and plans."""

from __future__ import annotations

from tests.support.mistakes import Mistake

CHOSEN = 'dp=2, pp=8, tp=4, schedule="zb_v", chunks=2'

CLASSES = [
    Mistake(
        "DataParallel",
        "no sum",
        (("self.all_reduce(w0_grad)", "w0_grad"), ("self.all_reduce(w1_grad)", "w1_grad")),
        ("'layer_0/weights' differs", "the sum over the 4 devices is right", "as `all_reduce` does"),
    ),
    Mistake(
        "DataParallel",
        "the average",
        (
            ("self.all_reduce(w0_grad)", "self.all_reduce(w0_grad) / self.num_devices"),
            ("self.all_reduce(w1_grad)", "self.all_reduce(w1_grad) / self.num_devices"),
        ),
        ("this is the average of 4 devices, and should be the sum",),
    ),
    Mistake(
        "DataParallel",
        "sums twice",
        (("self.all_reduce(w0_grad)", "self.all_reduce(self.all_reduce(w0_grad))"),),
        ("this is 4 times too large: do 4 devices add up what is already the sum",),
    ),
    Mistake(
        "DataParallel",
        "one device returns",
        (
            (
                "        x, z = self.tape.pop()\n",
                "        x, z = self.tape.pop()\n        if self.device_id:\n            return {}\n",
            ),
        ),
        ("device 0 waits in all_reduce(float32 (16, 64), op='sum')", "devices 1 to 3 have returned"),
    ),
    Mistake(
        "DataParallel",
        "a call on one device only",
        (
            (
                "        x, z = self.tape.pop()\n",
                "        x, z = self.tape.pop()\n        if not self.device_id:\n            self.all_reduce(x)\n",
            ),
        ),
        ("device 0 calls all_reduce(float32 (2, 16)", "the same collective calls, with the same shapes"),
    ),
    Mistake(
        "RingAllReduce",
        "the engine's all-reduce",
        (("        n, me =", "        return self.all_reduce(x)\n        n, me ="),),
        ("collective calls 1", "Do without collectives: use `send` and `receive`"),
    ),
    Mistake(
        "RingAllReduce",
        "sends all of it",
        (
            (
                "        for r in range(n - 1):\n            self.send(right, parts[(me - r) % n])\n"
                "            parts[(me - r - 1) % n] += self.receive(left)\n",
                "        total = x.copy()\n        for r in range(n - 1):\n            self.send(right, x)\n"
                "            x = self.receive(left)\n            total += x\n        return total\n",
            ),
        ),
        ("Device 0 sends 3 messages of 8,192 B on average; the target allows 12,288 B in all",),
    ),
    Mistake(
        "RingAllReduce",
        "receives before it sends",
        (
            (
                "            self.send(right, parts[(me - r) % n])\n"
                "            parts[(me - r - 1) % n] += self.receive(left)",
                "            got = self.receive(left)\n            self.send(right, parts[(me - r) % n])\n"
                "            parts[(me - r - 1) % n] += got",
            ),
        ),
        ("device 3 waits in receive(2)", "send before you receive"),
    ),
    Mistake(
        "RingAllReduce",
        "one round too many",
        (
            (
                "range(n - 1):\n            self.send(right, parts[(me - r) % n])",
                "range(n):\n            self.send(right, parts[(me - r) % n])",
            ),
        ),
        ("messages sent 7, and the target is 6", "Device 0 sends 7 messages of 2,048 B"),
    ),
    Mistake(
        "RingAllReduce",
        "no second lap",
        (
            (
                "            self.send(right, parts[(me - r + 1) % n])\n"
                "            parts[(me - r) % n][...] = self.receive(left)",
                "            pass",
            ),
        ),
        ("device 0, forward() differs from what a single device computes",),
    ),
    Mistake(
        "FSDP",
        "keeps a gathered weight",
        (
            (
                "        z = x @ self.all_gather(self.w0)",
                "        self.kept = self.all_gather(self.w0)\n        z = x @ self.kept",
            ),
        ),
        ("peak bytes 13,184, and the target is 9,088",),
    ),
    Mistake(
        "FSDP",
        "the full gradient",
        (("self.reduce_scatter(x.T @ dz)", "self.all_reduce(x.T @ dz)"),),
        ("'layer_0/weights' should be an array of shape (4, 64); it is one of shape (16, 64)",),
    ),
    Mistake(
        "FSDP",
        "a full sum of which a shard is used",
        (("self.reduce_scatter(x.T @ dz)", "np.split(self.all_reduce(x.T @ dz), self.num_devices)[self.device_id]"),),
        ("bytes sent 21,504", "4 all_gather, 1 all_reduce and 1 reduce_scatter"),
    ),
    Mistake(
        "FSDP",
        "no gather",
        (("x @ self.all_gather(self.w0)", "x @ self.w0"),),
        ("in forward: ValueError: matmul", "size 4 is different from 16"),
    ),
    Mistake(
        "FSDP",
        "no gradient of the input",
        ((', "x": dx}', "}"),),
        ("should return a dictionary of layer_0/weights, layer_1/weights, x", "it returned one of"),
    ),
    Mistake(
        "RingAttention",
        "no correction of what came before",
        (("total * shrunk", "total"), ("mixed * shrunk", "mixed")),
        ("device 0, forward() differs", "at [0, 0] it is 0.1428 and should be 0.0171985"),
    ),
    Mistake(
        "RingAttention",
        "gathers all keys and values",
        (("        n, me =", "        self.all_gather(x['kv'])\n        n, me ="),),
        ("bytes sent 6,192", "Do without collectives"),
    ),
    Mistake(
        "RingAttention",
        "no maximum",
        (("np.maximum(self.highest, scores.max(axis=1, keepdims=True))", "0 * scores[:, :1]"),),
        ("it is nan (an overflow of its dtype, or a division by 0)",),
    ),
    Mistake("RingAttention", "no scale", ((" * self.q.shape[1] ** -0.5", ""),), ("device 0, forward() differs",)),
    Mistake(
        "RingAttention",
        "sends once too often",
        (
            (
                "            if hop < n - 1:\n                self.send((me + 1) % n, kv)",
                "            self.send((me + 1) % n, kv)",
            ),
        ),
        ("messages were sent and never received: 1 from device 0 to device 1",),
    ),
    Mistake(
        "SwitchDispatch",
        "no gate",
        (("p[tokens, chosen][fits, None] * back", "back"),),
        ("this is the result if an expert's output is not multiplied by p(x)",),
    ),
    Mistake(
        "SwitchDispatch",
        "places from 1",
        (("cumsum(axis=0) - 1", "cumsum(axis=0)"),),
        ("this is the result if places are counted from 1",),
    ),
    Mistake(
        "SwitchDispatch",
        "what does not fit is lost",
        (("        x[fits] += p", "        x[~fits] = 0\n        x[fits] += p"),),
        ("this is the result if a token that does not fit is lost",),
    ),
    Mistake(
        "SwitchDispatch",
        "no capacity",
        (("fits = place < capacity", "fits = place < len(x)"),),
        ("IndexError: index 2 is out of bounds for axis 1 with size 2",),
    ),
    Mistake(
        "SwitchDispatch",
        "no way back",
        (("self.all_to_all(relu(rows @ self.w0) @ self.w1)", "relu(rows @ self.w0) @ self.w1"),),
        ("device 0, forward(), 'out' differs",),
    ),
]

LAYOUTS = [
    Mistake(
        "matmul",
        "nothing is split",
        (('graph.shard("matmul", ((4, 1), (1, 2)))', "pass"),),
        ("no operator is configured; give one a strategy with graph.shard(name, strategy)",),
    ),
    Mistake(
        "matmul",
        "the summed dimension is split",
        (("((4, 1), (1, 2))", "((1, 2), (2, 4))"),),
        ("262,144 bytes move", "matmul pays 262,144 bytes (all-reduce)"),
    ),
    Mistake(
        "matmul",
        "one factor is split differently",
        (("((4, 1), (1, 2))", "((4, 2), (1, 1))"),),
        ("is split into 1 part, but dimension 1 of 'x' into 2", "both are the same dimension"),
    ),
    Mistake(
        "matmul",
        "more parts than devices",
        (("((4, 1), (1, 2))", "((8, 1), (1, 8))"),),
        ("makes 64 parts, which does not divide 8 devices",),
    ),
    Mistake(
        "matmul",
        "only the batch is split",
        (("((4, 1), (1, 2))", "((8, 1), (1, 1))"),),
        ("each device holds 57,344 bytes, the cap is 50,000: 'w' takes 32,768",),
    ),
    Mistake(
        "megatron_mlp",
        "only the batch is split",
        (("((2, 1), (1, 4))", "((8, 1), (1, 1))"), ("((2, 4), (4, 1)), out=(8, 1)", "((8, 1), (1, 1))")),
        ("each device holds 153,600 bytes, the cap is 68,000: 'up' takes 65,536",),
    ),
    Mistake(
        "megatron_mlp",
        "columns twice",
        (("((2, 4), (4, 1)), out=(8, 1)", "((2, 1), (1, 4))"),),
        ("gelu -> matmul2 pays 196,608 bytes (all-gather)",),
    ),
    Mistake(
        "megatron_mlp",
        "only columns are split",
        (("((2, 1), (1, 4))", "((1, 1), (1, 8))"), ("((2, 4), (4, 1)), out=(8, 1)", "((1, 8), (8, 1))")),
        ("matmul2 pays 229,376 bytes (all-reduce)",),
    ),
    Mistake(
        "megatron_mlp",
        "an operator that does not exist",
        (('"matmul2"', '"matmul3"'),),
        ("there is no operator named 'matmul3'", "did you mean 'matmul"),
    ),
    Mistake("megatron_mlp", "too few numbers", (("((2, 1), (1, 4))", "((2,), (1, 4))"),), ("matmul1",)),
]

PLANS = [
    Mistake(
        "llama_8b_16",
        "gradients on every GPU",
        ((", zero=2", ""),),
        ("does not fit: the fullest GPU needs 90.4 to 101.6 GiB", "tp 2 and dp 8 saves 42.4 GiB"),
    ),
    Mistake(
        "llama_8b_16", "too few GPUs", (("dp=job.gpus", "dp=8"),), ("makes 8 GPUs, and there are 16; dp 16 would",)
    ),
    Mistake(
        "llama_8b_16",
        "tensors over eight GPUs",
        (("dp=job.gpus, zero=2", "dp=2, tp=8"),),
        (
            "a step takes 5.257 s",
            "tensor parallel communication 1.95 s",
            "The change that would help most: dp 8 and tp 2",
        ),
    ),
    Mistake(
        "llama_8b_16",
        "dominates by the name of an axis",
        (('"replicas"', '"dp"'),),
        ("dominates is one of recomputation, tp, cp, ep, replicas, host, bubble; got 'dp'",),
    ),
    Mistake("llama_8b_16", "no GPU memory predicted", (("gib=65", "gib=-1"),), ("gib",)),
    Mistake(
        "llama_70b_64",
        "only FSDP",
        ((CHOSEN, "dp=64, zero=3"),),
        ("does not fit: the fullest GPU needs 197.2 to 220.6 GiB", "recompute full saves 155.4 GiB"),
    ),
    Mistake(
        "llama_70b_64",
        "1F1B",
        ((CHOSEN, "dp=1, pp=8, tp=8"),),
        ("a step takes 39.491 s", "the pipeline's bubble 3.52 s", "dp 2 and tp 4, 35.036 s"),
    ),
    Mistake(
        "llama_70b_64",
        "tensors across machines",
        ((CHOSEN, "dp=4, tp=16"),),
        ("tensor parallel communication 30.6 s", "pp 2 and tp 8, 37.082 s a step"),
    ),
    Mistake(
        "llama_70b_64",
        "only a pipeline",
        ((CHOSEN, "dp=2, pp=32"),),
        ("does not fit", "activations 134.2", "recompute full saves 123.9 GiB"),
    ),
    Mistake("llama_70b_64", "a schedule that does not exist", (('"zb_v"', '"zbv"'),), ("zbv", "zb_v")),
]
