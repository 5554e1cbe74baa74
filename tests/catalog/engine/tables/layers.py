"""Chapter `layers`: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "LayerSplit": {
        "sent": 1_040,
        "messages": 2,
        "collectives": 0,
        "flops": 12_288,
        "weights": 1_024,
        "clock": 49_152,
    },
    "PipelineInference": {"sent": 1_632, "messages": 12, "collectives": 0, "weights": 1_024, "clock": 15_360},
    "GPipeRemat": {
        "sent": 1_088,
        "messages": 8,
        "collectives": 0,
        "flops": 65_536,
        "weights": 8_192,
        "stored": 896,
        "clock": 102_400,
    },
}

WRONG = {
    ("LayerSplit", "no relu on the way back"): (
        "(grads @ self.w.T) * (x > 0)",
        "grads @ self.w.T",
        "failed: device 0, backward(), 'layer_0/weights' differs from what a single device computes: at [",
    ),
    ("LayerSplit", "everybody returns something"): (
        "        return None\n",
        "        return y\n",
        "failed: device 0, forward() should return None; it returned one of shape (8, 16)",
    ),
    ("LayerSplit", "the first one waits as well"): (
        "if not self.first:",
        "if self.num_devices:",
        "failed: device 0 of 4, receive(-1): there is no device -1; there are 4 devices, 0 to 3",
    ),
    ("LayerSplit", "the gradient received from the wrong side"): (
        "grads = self.receive(self.device_id + 1)",
        "grads = self.receive((self.device_id - 1) % self.num_devices)",
        "failed: line 12: nobody can move: device 0 waits in receive(3), line 34 of mine.py; device 1 waits",
    ),
    ("LayerSplit", "the parameters kept"): (
        "        self.w[...] = ",
        "        self.params = params\n        self.w[...] = ",
        "over_target: correct, but bytes after loading 5,120, and the target is 1,024",
    ),
    ("LayerSplit", "sent to everybody"): (
        "        self.send(self.device_id + 1, y)\n",
        "        for other in range(self.num_devices):\n"
        "            if other != self.device_id:\n"
        "                self.send(other, y)\n",
        "failed: ",
    ),
    ("LayerSplit", "computed again for backward"): (
        "        x = self.tape.pop()\n",
        "        x = self.tape.pop()\n        relu(x) @ self.w\n",
        "over_target: correct, but flops 16,384, and the target is 12,288; and flops until the last output 65,536",
    ),
    ("PipelineInference", "one after the other"): (
        "        return None\n",
        "        self.barrier()\n        return None\n",
        "failed: line ",
    ),
    ("PipelineInference", "nothing for the end"): (
        "        if self.device_id == self.num_devices - 1:\n            return y\n",
        "        if self.device_id == self.num_devices - 1:\n            return None\n",
        "failed: got 0 outputs for 12 inputs",
    ),
    ("PipelineInference", "sent twice"): (
        "        self.send(self.device_id + 1, y)\n",
        "        self.send(self.device_id + 1, y)\n        self.send(self.device_id + 1, y)\n",
        "failed: ",
    ),
    ("PipelineInference", "all together"): (
        "        y = relu(x @ self.w)\n",
        "        y = relu(x @ self.w)\n        self.barrier()\n",
        "failed: ",
    ),
    ("GPipeRemat", "everything stored"): (
        "        inputs = []\n",
        "        seen = self.__dict__.setdefault('seen', {})\n"
        "        if id(x) in seen:\n"
        "            return seen.pop(id(x)), None\n"
        "        inputs = seen[id(x)] = []\n",
        "over_target: correct, but bytes stored while it waits for a message 2,048, and the target is 896",
    ),
    ("GPipeRemat", "made again after the gradient has come"): (
        """\
            inputs = self.stage(self.kept.pop())[0]
            self.through(inputs, parts.pop() if self.last else self.receive(self.device_id + 1))
""",
        """\
            grads = parts.pop() if self.last else self.receive(self.device_id + 1)
            self.through(self.stage(self.kept.pop())[0], grads)
""",
        "over_target: correct, but flops until the last output 114,688, and the target is 102,400",
    ),
    ("GPipeRemat", "the output that was made again has a name"): (
        "inputs = self.stage(self.kept.pop())[0]",
        "inputs, y = self.stage(self.kept.pop())",
        "over_target: correct, but bytes stored while it waits for a message 1,024, and the target is 896",
    ),
    ("GPipeRemat", "all microbatches made again at once"): (
        "        for _ in range(self.microbatches):\n",
        "        again = [self.stage(x)[0] for x in self.kept]\n"
        "        self.kept, self.stage = again, lambda inputs: (inputs, None)\n"
        "        for _ in range(self.microbatches):\n",
        "over_target: correct, but bytes stored while it waits for a message 2,048, and the target is 896",
    ),
    ("GPipeRemat", "no microbatches"): (
        "self.microbatches = microbatches",
        "self.microbatches = 1",
        "over_target: correct, but bytes stored while it waits for a message 2,048, and the target is 896; and flops",
    ),
    ("GPipeRemat", "the first microbatch back first"): (
        "parts.pop()",
        "parts.pop(0)",
        "failed: device 0, backward(), 'layer_0/weights' differs from what a single device computes: at [",
    ),
    ("GPipeRemat", "the last microbatch counts"): (
        "weight_grad += ",
        "weight_grad[...] = ",
        "failed: device 0, backward(), 'layer_0/weights' differs from what a single device computes: at [",
    ),
    ("GPipeRemat", "averaged over microbatches"): (
        "weight_grad += relu(x).T @ grads",
        "weight_grad += relu(x).T @ grads / self.microbatches",
        "failed: device 0, backward(), 'layer_0/weights' differs from what a single device computes: at [",
    ),
}
