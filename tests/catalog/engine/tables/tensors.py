"""Chapter `tensors`: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "TensorParallel": {"sent": 1_536, "flops": 24_576, "weights": 2_048},
    "SequenceParallel": {"sent": 1_536, "flops": 24_576, "collectives": 4, "weights": 2_048, "peak": 6_912},
    "Matmul2D": {"sent": 1_536, "flops": 6_144, "weights": 1_024},
    "MegatronLayer": {"sent": 3_072, "collectives": 4, "flops": 40_320, "weights": 3_072},
    "MegatronMesh": {"sent": 6_336, "collectives": 10, "weights": 4_224},
    "VocabParallelLoss": {"sent": 144, "collectives": 3, "peak": 2_528},
}

WRONG = {
    ("TensorParallel", "no sum"): (
        "self.all_reduce(relu(z) @ self.w1)",
        "relu(z) @ self.w1",
        "failed: device 0, forward()",
    ),
    ("TensorParallel", "rows first"): (
        'np.split(params["layer_0/weights"], self.num_devices, axis=1)',
        'np.split(params["layer_0/weights"], self.num_devices)',
        "failed: line 20: raised on device 0 of 4, in load_checkpoint: ValueError: could not broadcast",
    ),
    ("TensorParallel", "the input's gradient not summed"): (
        '"x": self.all_reduce(dz @ self.w0.T)',
        '"x": dz @ self.w0.T',
        "failed: device 0, backward(), 'x' differs from what a single device computes",
    ),
    ("TensorParallel", "a part's gradient summed"): (
        '"layer_1/weights": w1_grad',
        '"layer_1/weights": self.all_reduce(w1_grad)',
        "failed: device 0, backward(), 'layer_1/weights' differs from what a single device computes",
    ),
    ("SequenceParallel", "averaged"): (
        "self.reduce_scatter(relu(z) @ self.w1)",
        "self.reduce_scatter(relu(z) @ self.w1, 'avg')",
        "failed: device 0, forward() differs from what a single device computes",
    ),
    ("SequenceParallel", "all rows of the gradient"): (
        '"x": self.reduce_scatter(dz @ self.w0.T)',
        '"x": self.all_reduce(dz @ self.w0.T)',
        "failed: device 0, backward(), 'x' should be an array of shape (2, 16); it is one of shape (8, 16)",
    ),
    ("SequenceParallel", "own rows only"): (
        "        grads = self.all_gather(grads)\n",
        "",
        "failed: line ",
    ),
    ("SequenceParallel", "everything reduced"): (
        "self.reduce_scatter(relu(z) @ self.w1)",
        "np.split(self.all_reduce(relu(z) @ self.w1), self.num_devices)[self.device_id]",
        "over_target: correct, but bytes sent 1,920, and the target is 1,536",
    ),
    ("Matmul2D", "summed over all devices"): (
        "self.reduce_scatter(x @ self.w, axis=1, group=self.along_y)",
        "np.split(self.all_reduce(x @ self.w), len(self.along_y), axis=1)[self.j]",
        "failed: device 0, forward() differs from what a single device computes: at [0, 0] it is ... ; "
        "is this the sum over all devices? Only devices along y",
    ),
    ("Matmul2D", "along the wrong axis"): (
        "axis=1, group=self.along_y)\n\n",
        "axis=1, group=self.along_x)\n\n",
        "failed: device 0, forward() differs from what a single device computes: ",
    ),
    ("Matmul2D", "replicated, then cut"): (
        "self.reduce_scatter(x @ self.w, axis=1, group=self.along_y)",
        "np.split(self.all_reduce(x @ self.w, group=self.along_y), len(self.along_y), axis=1)[self.j]",
        "over_target: correct, but bytes sent 1,792, and the target is 1,536",
    ),
    ("Matmul2D", "gathered first"): (
        "self.reduce_scatter(x @ self.w, axis=1, group=self.along_y)",
        "np.split(self.all_gather(x, 1, self.along_y) @ self.all_gather(self.w, 0, self.along_y), "
        "len(self.along_y), axis=1)[self.j]",
        "over_target: correct, but bytes sent 2,432, and the target is 1,536; and flops 8,192, and the target is 6,144",
    ),
    ("Matmul2D", "the weight's gradient not summed"): (
        "self.all_reduce(x.T @ grads, group=self.along_x)",
        "x.T @ grads",
        "failed: device 0, backward(), 'weights' differs from what a single device computes: at [0, 0] it is ... "
        "; is this the weight's gradient for your rows only?",
    ),
    ("Matmul2D", "a square mesh taken for granted"): (
        "x_size, y_size = mesh\n",
        "x_size, y_size = mesh[::-1]\n",
        "failed: line 22: tried with 8 devices, model_dim 12, hidden_dim 16, mesh [4, 2]: raised on device 0 of 8, in "
        "forward: ValueError",
    ),
    ("MegatronLayer", "x added on every device"): (
        "        y = x + self.all_reduce(self.attention(x))\n        return y + self.all_reduce(self.mlp(y))\n",
        "        y = self.all_reduce(x + self.attention(x))\n        return self.all_reduce(y + self.mlp(y))\n",
        "failed: device 0, forward() differs ... is x added on every device?",
    ),
    ("MegatronLayer", "scores not scaled"): (
        "(model_dim // heads) ** -0.5",
        "1.0",
        "failed: device 0, forward() differs ... are the scores divided by sqrt(head_dim)?",
    ),
    ("MegatronLayer", "a sum for each of query, key and value"): (
        "dx = dx + d @ self.w[name].T",
        "dx = dx + self.all_reduce(d @ self.w[name].T, 'avg')",
        "over_target: correct, but bytes sent 5,376, and the target is 3,072; and collective calls 7, and the target",
    ),
    ("MegatronLayer", "weights kept whole"): (
        "[self.device_id].copy()",
        "[self.device_id]",
        "over_target: correct, but bytes after loading 12,288, and the target is 3,072",
    ),
    ("MegatronLayer", "softmax taken for relu in backward"): (
        "weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) * self.scale",
        "weights * dweights * self.scale",
        "failed: device 0, backward(), 'attention/query' differs",
    ),
    ("MegatronLayer", "one device's heads for all"): (
        "self.heads = heads // self.num_devices",
        "self.heads = 1",
        "failed: tried with 2 devices, hidden_dim 32: device 0, forward() differs",
    ),
    ("MegatronMesh", "gains summed along dp only"): (
        "self.all_reduce(np.stack([gain_0, gain_1]))",
        "self.all_reduce(np.stack([gain_0, gain_1]), group=self.dp)",
        "failed: device 0, backward(), 'norm_0/gain' differs",
    ),
    ("MegatronMesh", "gains summed along tp only"): (
        "self.all_reduce(np.stack([gain_0, gain_1]))",
        "self.all_reduce(np.stack([gain_0, gain_1]), group=self.tp)",
        "failed: device 0, backward(), 'norm_0/gain' differs ... are the gains' gradients summed along tp only?",
    ),
    ("MegatronMesh", "weights' gradients not summed"): (
        "**self.summed({**of_mlp, **of_attention})",
        "**of_mlp, **of_attention",
        "failed: device 0, backward(), 'attention/query' differs ... are the weights' gradients summed along dp?",
    ),
    ("MegatronMesh", "weights' gradients summed on all devices"): (
        "for part in parts.values()]), group=self.dp)",
        "for part in parts.values()]))",
        "failed: device 0, backward(), 'attention/query' differs",
    ),
    ("MegatronMesh", "own tokens only"): (
        "self.attention_backward(self.all_gather(dy, group=self.tp))",
        "self.attention_backward(np.tile(dy, (len(self.tp), 1)))",
        "failed: device 0, backward(), 'attention/query' differs",
    ),
    ("MegatronMesh", "no residual"): (
        "        dy += grads\n",
        "",
        "failed: device 0, backward(), 'attention/query' differs",
    ),
    ("MegatronMesh", "a sum for each weight"): (
        "{**self.summed({**of_mlp, **of_attention})",
        "{**{n: self.all_reduce(d, group=self.dp) for n, d in {**of_mlp, **of_attention}.items()}",
        "over_target: correct, but collective calls 15, and the target is 10",
    ),
    ("MegatronMesh", "reduced, then cut"): (
        "self.norm_backward(self.reduce_scatter(dh, group=self.tp))\n        dy +=",
        "self.norm_backward(np.split(self.all_reduce(dh, group=self.tp), len(self.tp))[self.j])\n        dy +=",
        "over_target: correct, but bytes sent 6,592, and the target is 6,336",
    ),
    ("MegatronMesh", "all weights on every device"): (
        "np.split(params[name], len(self.tp), axis)[self.j].copy()",
        "np.split(params[name], len(self.tp), axis)[self.j]",
        "over_target: correct, but bytes after loading 8,320, and the target is 4,224",
    ),
    ("VocabParallelLoss", "the highest of the own words"): (
        'self.all_reduce(logits.max(axis=1), "max")',
        "logits.max(axis=1)",
        "failed: device 0, forward() differs ... is this the highest logit of your words only?",
    ),
    ("VocabParallelLoss", "nothing summed"): (
        '        logits, targets = x["logits"]',
        '        self.all_reduce = lambda array, op="sum": array\n        logits, targets = x["logits"]',
        "failed: device 0, forward() differs ... is this the loss over your words only?",
    ),
    ("VocabParallelLoss", "averaged"): (
        "self.all_reduce(powers.sum(axis=1))",
        'self.all_reduce(powers.sum(axis=1), "avg")',
        "failed: device 0, forward() differs ... did you average the sum of exponentials over devices?",
    ),
    ("VocabParallelLoss", "a negative index"): (
        "np.where(right, shifted, 0).sum(axis=1)",
        "np.take_along_axis(shifted, (targets - self.words[0])[:, None] % len(self.words), axis=1)[:, 0]",
        "failed: device 0, forward() differs from what a single device computes: at [0] it is",
    ),
    ("VocabParallelLoss", "logits gathered"): (
        'self.all_reduce(logits.max(axis=1), "max")',
        "self.all_gather(logits, axis=1).max(axis=1)",
        "over_target: correct, but bytes sent 1,632, and the target is 144",
    ),
    ("VocabParallelLoss", "gradients of the losses forgotten"): (
        "(probabilities - right) * grads[:, None]",
        "probabilities - right",
        "failed: device 0, backward(), 'logits' differs",
    ),
}
