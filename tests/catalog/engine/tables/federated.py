"""Chapter `federated`, training on clients: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "FedSGD": {"uplink": 544},
    "FedAvg": {"uplink": 9_360},
    "LowRank": {"sent": 1_040},
}

ROUND = """\
        if self.device_id == 0:
            # Adding up the sums and the numbers of examples already weights each client correctly.
            total = sum(self.receive(client) for client in clients)
            self.w -= self.rate * total[:-1] / total[-1]
            for client in clients:
                self.send(client, self.w)
        else:
            x, y = examples["x"], examples["y"]
            grad = x.T @ (x @ self.w - y)
            self.send(0, np.append(grad, np.float32(len(y))))
            self.w[...] = self.receive(0)
"""
TRAIN_B = """\
        a = self.drawn(seed)
        b = np.zeros((self.rank, len(self.w)), dtype=np.float32)
        for _ in range(self.steps):
            grad = x.T @ (x @ (self.w + a @ b) - y)
            b -= self.rate * (a.T @ grad)
        self.send(0, np.uint32(seed))
        self.send(0, b)
        return None

    def rebuild(self, client):
        seed = int(self.receive(client))
        return self.drawn(seed) @ self.receive(client)
"""
TRAIN_ALL = """\
        update = np.zeros_like(self.w)
        for _ in range(self.steps):
            update -= self.rate * (x.T @ (x @ (self.w + update) - y))
        self.send(0, {sent})
        return None

    def rebuild(self, client):
        return self.receive(client)
"""

WRONG = {
    ("FedSGD", "every client counts the same"): (
        "            self.send(0, np.append(grad, np.float32(len(y))))",
        "            self.send(0, np.append(grad / len(y), np.float32(1)))",
        "failed: device 0, forward() differs ... ; every client's average has the same weight",
    ),
    ("FedSGD", "a sum"): (
        "total[:-1] / total[-1]",
        "total[:-1]",
        "failed: device 0, forward() differs ... ; this is the step of a sum over examples",
    ),
    ("FedSGD", "divided by the number of clients"): (
        "total[:-1] / total[-1]",
        "total[:-1] / len(clients)",
        "failed: device 0, forward() differs ... ; the sum over examples is divided by the number of clients",
    ),
    ("FedSGD", "a known number of examples"): (
        "total[:-1] / total[-1]",
        "total[:-1] / 8",
        "failed: tried with dim 8: device 0, forward() differs",
    ),
    ("FedSGD", "clients keep their weights"): (
        "self.w[...] = self.receive(0)",
        "self.receive(0)",
        "failed: device 1, forward() differs ... ; these are the weights from before",
    ),
    ("FedSGD", "eight bytes a number"): (
        "np.float32(len(y))",
        "len(y)",
        "over_target: correct, but bytes sent by all clients together 2,176, and the target is 576",
    ),
    ("FedSGD", "the examples are sent"): (
        ROUND,
        """\
        if self.device_id == 0:
            data = np.concatenate([self.receive(client) for client in clients])
            x, y = data[:, :-1], data[:, -1]
            self.w -= self.rate * x.T @ (x @ self.w - y) / np.float32(len(y))
            for client in clients:
                self.send(client, self.w)
        else:
            self.send(0, np.append(examples["x"], examples["y"][:, None], axis=1))
            self.w[...] = self.receive(0)
""",
        "over_target: correct, but bytes sent by all clients together 1,152, and the target is 576",
    ),
    ("FedAvg", "one epoch"): (
        "EPOCHS, ROUNDS = 6, 9",
        "EPOCHS, ROUNDS = 1, 9",
        "failed: the server's weights have a loss of 2.696: 89.8%",
    ),
    ("FedAvg", "one epoch, many rounds"): (
        "EPOCHS, ROUNDS = 6, 9",
        "EPOCHS, ROUNDS = 1, 29",
        "over_target: correct, but bytes sent by all clients together 30,160, and the target is 9,504",
    ),
    ("FedAvg", "everybody to the end"): (
        "EPOCHS, ROUNDS = 6, 9",
        "EPOCHS, ROUNDS = 300, 1",
        "failed: the server's weights have a loss of 2.2 ... More rounds help, and fewer epochs",
    ),
    ("FedAvg", "every client counts the same"): (
        "np.append(len(y) * w, np.float32(len(y)))",
        "np.append(w, np.float32(1))",
        "failed: the server's weights have a loss of 1.8",
    ),
    ("FedAvg", "nothing is returned"): (
        "        return self.w\n",
        "",
        "failed: device 0, forward() should return an array of shape (64,); it is of type NoneType",
    ),
    ("FedAvg", "the examples are sent"): (
        """\
        for _ in range(self.ROUNDS):
            if self.device_id == 0:
                self.serve()
            else:
                self.train(examples["x"], examples["y"])
""",
        """\
        if self.device_id:
            self.send(0, np.append(examples["x"], examples["y"][:, None], axis=1))
        else:
            data = np.concatenate([self.receive(client) for client in range(1, self.num_devices)])
            x, y = data[:, :-1], data[:, -1]
            self.w = np.linalg.solve(x.T @ x, x.T @ y)
""",
        "over_target: correct, but bytes sent by all clients together 66,592, and the target is 9,504",
    ),
    ("LowRank", "the whole layer, sent whole"): (
        TRAIN_B,
        TRAIN_ALL.format(sent="update"),
        "failed: device 0, forward() differs ... ; the whole layer was trained, without restriction",
    ),
    ("LowRank", "the whole layer, multiplied afterwards"): (
        TRAIN_B,
        TRAIN_ALL.format(sent="self.drawn(seed) @ (self.drawn(seed).T @ update)"),
        "failed: device 0, forward() differs ... ; the whole layer was trained, and the result multiplied",
    ),
    ("LowRank", "the first gradient again"): (
        "self.w + a @ b",
        "self.w",
        "failed: device 0, forward() differs ... ; every step took the gradient at the first weights",
    ),
    ("LowRank", "one A for all"): (
        "np.random.default_rng(seed)",
        "np.random.default_rng(0)",
        "failed: device 0, forward() differs",
    ),
    ("LowRank", "uphill"): (
        "b -= self.rate",
        "b += self.rate",
        "failed: device 0, forward() differs ... ; the steps went uphill",
    ),
    ("LowRank", "A is sent"): (
        """\
        self.send(0, np.uint32(seed))
        self.send(0, b)
        return None

    def rebuild(self, client):
        seed = int(self.receive(client))
        return self.drawn(seed) @ self.receive(client)
""",
        """\
        self.send(0, a)
        self.send(0, b)
        return None

    def rebuild(self, client):
        return self.receive(client) @ self.receive(client)
""",
        "over_target: correct, but bytes sent 2,064, and the target is 1,040",
    ),
    ("LowRank", "the product is sent"): (
        "        self.send(0, np.uint32(seed))\n        self.send(0, b)\n",
        "        self.send(0, np.uint32(seed))\n        self.send(0, b)\n        self.send(0, a @ b)\n",
        "failed: messages were sent and never received: 1 from device 1 to device 0",
    ),
}
