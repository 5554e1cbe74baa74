"""Chapter `layers`: what the references measure, and what wrong solutions are told."""

FIGURES = {
    "PipelineInference": {"sent": 1_536, "messages": 12, "collectives": 0, "weights": 1_024, "clock": 15_360},
}

WRONG = {
    ("PipelineInference", "one after the other"): (
        "        return None\n",
        "        self.barrier()\n        return None\n",
        "failed: line ",
    ),
    ("PipelineInference", "nothing for the end"): (
        "        if self.device_id == self.num_devices - 1:\n            return y\n",
        "        if self.device_id == self.num_devices - 1:\n            return None\n",
        "failed: there are 0 outputs for 12 inputs",
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
}
