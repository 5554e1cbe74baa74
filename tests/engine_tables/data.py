"""Chapter `data`: what the references measure, and what wrong solutions are told."""

FIGURES = {
    "DataParallel": {"sent": 12_288, "flops": 20_480},
    "OneBucket": {"sent": 12_288, "flops": 20_480, "collectives": 1},
    "RingAllReduce": {"sent": 12_288, "messages": 6, "collectives": 0, "peak": 10_240},
    "ZeRO1": {"sent": 2 * 12_288, "weights": 10_240, "kept": 10_240},
    "FSDP": {"sent": 18_432, "flops": 24_576, "weights": 2_048, "peak": 9_088},
    "FSDPLean": {"sent": 15_360, "flops": 20_480, "weights": 2_048, "peak": 8_960},
}

WRONG = {
    ("DataParallel", "nothing summed"): (
        "self.all_reduce(w0_grad)",
        "w0_grad",
        "failed: device 0, backward(), 'layer_0/weights' differs from what a single device computes: at [0, 0] it is",
    ),
    ("DataParallel", "averaged"): ("self.all_reduce(w1_grad)", "self.all_reduce(w1_grad, 'avg')", "failed: device 0"),
    ("DataParallel", "a name missing"): (
        '"layer_1/weights": self',
        '"w1": self',
        "failed: device 0, backward() should return a dictionary of layer_0/weights, layer_1/weights; it returned ",
    ),
    ("DataParallel", "gathered, then summed"): (
        "self.all_reduce(w0_grad)",
        "self.all_gather(w0_grad[None]).sum(0)",
        "over_target: correct, but bytes sent 18,432, and the target is 12,288",
    ),
    ("OneBucket", "two calls"): (
        "        w0_sum, w1_sum",
        "        bucket = self.all_reduce(bucket, group=[self.device_id])\n        w0_sum, w1_sum",
        "over_target: correct, but collective calls 2, and the target is 1",
    ),
    ("RingAllReduce", "a collective"): (
        "        return x\n",
        "        return self.all_reduce(x, 'max')\n",
        "over_target: correct, but bytes sent 24,576",
    ),
    ("RingAllReduce", "a wrong part"): ("(me - r + 1) % n", "(me - r) % n", "failed: device 0, forward() differs"),
    ("RingAllReduce", "everybody waits"): (
        "            self.send(right, parts[(me - r) % n])\n            parts[(me - r - 1) % n] +=",
        "            parts[(me - r - 1) % n] += self.receive(left)\n            parts[(me - r - 1) % n] +=",
        "failed: line 8: nobody can move: device 0 waits in receive(3)",
    ),
    ("ZeRO1", "a whole state"): (
        "(len(w) // n, w.shape[1])",
        "(len(w), w.shape[1])",
        "failed: line ",
    ),
    ("ZeRO1", "momentum forgotten"): (
        "self.momentum * state + shard",
        "shard",
        "failed: device 0, backward(), 'layer_",
    ),
    ("ZeRO1", "everything reduced"): (
        "shard = self.reduce_scatter(grad)",
        "shard = np.split(self.all_reduce(grad), self.num_devices)[self.device_id]",
        "over_target: correct, but bytes sent 36,864, and the target is 24,576",
    ),
    ("FSDP", "weights kept whole"): (
        "        z = x @ self.all_gather(self.w0)\n",
        "        self.whole = self.all_gather(self.w0)\n        z = x @ self.whole\n",
        "over_target: correct, but peak bytes ",
    ),
    ("FSDP", "parameters kept"): (
        "        self.w0[...] = np.split",
        "        self.kept = params\n        self.w0[...] = np.split",
        "over_target: correct, but bytes after loading 10,240, and the target is 2,048; and peak bytes",
    ),
    ("FSDPLean", "gathered for nothing"): (
        "        del z, grads\n",
        "        del z, grads\n        self.all_gather(self.w0)\n",
        "over_target: correct, but bytes sent 18,432, and the target is 15,360",
    ),
}
