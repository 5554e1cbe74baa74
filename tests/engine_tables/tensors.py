"""Chapter `tensors`: what the references measure, and what wrong solutions are told."""

FIGURES = {
    "TensorParallel": {"sent": 1_536, "flops": 24_576, "weights": 2_048},
    "SequenceParallel": {"sent": 1_536, "flops": 24_576, "weights": 2_048, "peak": 6_912},
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
    ("SequenceParallel", "everything reduced"): (
        "self.reduce_scatter(relu(z) @ self.w1)",
        "np.split(self.all_reduce(relu(z) @ self.w1), 4)[self.device_id]",
        "over_target: correct, but bytes sent 1,920, and the target is 1,536",
    ),
}
