"""Chapter `federated`, compressed updates: figures of the references, and wrong solutions with their messages."""

FIGURES = {
    "Subsample": {"sent": 1_032},
    "Quantize": {"sent": 520},
    "Rotate": {"sent": 528, "collectives": 0, "peak": 131_072},
}

SUBSAMPLED = """\
        self.send(0, np.uint32(x["seed"]))
        self.send(0, x["update"][self.drawn(x["seed"])])
        return None

    def rebuild(self, client):
        update = np.zeros(self.size, dtype=np.float32)
        places = self.drawn(int(self.receive(client)))
        update[places] = self.share * self.receive(client)
        return update
"""
ROTATED = """\
        rotated = hadamard(self.signs(rng) * x["update"])
        low, high = rotated.min(), rotated.max()
        high_ones = rng.random(self.size) < (rotated - low) / ((high - low) or 1)
        self.send(0, np.uint32(x["seed"]))
        self.send(0, np.array([low, high], dtype=np.float32))
        self.send(0, np.packbits(high_ones))
        return None

    def rebuild(self, client):
        signs = self.signs(np.random.default_rng(int(self.receive(client))))
        low, high = self.receive(client)
        high_ones = np.unpackbits(self.receive(client), count=self.size)
        return signs * hadamard(np.where(high_ones, high, low))
"""
BACK = "signs * hadamard(np.where(high_ones, high, low))"

WRONG = {
    ("Subsample", "not scaled"): (
        "self.share * self.receive(client)",
        "self.receive(client)",
        "failed: the update of client 1, as rebuilt: [17] was ... and is ... ; it should be 0, or 16 times",
    ),
    ("Subsample", "averaged"): (
        "np.stack([self.rebuild(client) for client in range(1, self.num_devices)])",
        "np.mean([self.rebuild(client) for client in range(1, self.num_devices)], axis=0)",
        "failed: device 0, forward() should return an array of shape (4, 4096); it is one of shape (4096,)",
    ),
    ("Subsample", "always the first ones"): (
        "np.random.default_rng(seed).choice(self.size, self.size // self.share, replace=False)",
        "np.arange(self.size // self.share)",
        "failed: tried with size 64: over 640 seeds the number at [0] arrived 640 times",
    ),
    ("Subsample", "the largest ones"): (
        SUBSAMPLED,
        SUBSAMPLED.replace(
            'np.uint32(x["seed"])', "(-abs(x['update'])).argsort()[: self.size // self.share].astype(np.uint16)"
        )
        .replace('self.drawn(x["seed"])', "(-abs(x['update'])).argsort()[: self.size // self.share]")
        .replace("self.drawn(int(self.receive(client)))", "self.receive(client)"),
        "failed: tried with size 64: over 640 seeds the number at [0] arrived 0 times",
    ),
    ("Subsample", "a coin for each"): (
        ".choice(self.size, self.size // self.share, replace=False)",
        ".random(self.size) < 1 / self.share",
        "failed: of 4096 numbers of a client, between ",
    ),
    ("Subsample", "with replacement"): (
        "replace=False",
        "replace=True",
        "failed: of 4096 numbers of a client, between ",
    ),
    ("Subsample", "zeros are sent"): (
        SUBSAMPLED,
        """\
        update = np.zeros(self.size, dtype=np.float32)
        places = self.drawn(x["seed"])
        update[places] = self.share * x["update"][places]
        self.send(0, update)
        return None

    def rebuild(self, client):
        return self.receive(client)

""",
        "over_target: correct, but bytes sent 16,384, and the target is 1,032",
    ),
    ("Quantize", "to the nearest level"): (
        'np.random.default_rng(x["seed"]).random(self.size) <',
        "0.5 <",
        "failed: tried with size 64: over 240 seeds the number",
    ),
    ("Quantize", "one coin for all"): (
        ".random(self.size) <",
        ".random() <",
        "failed: tried with size 64: the errors of an update's numbers are correlated",
    ),
    ("Quantize", "a fair coin"): (
        "< exact - below",
        "< 0.5 * (exact > below)",
        "failed: tried with size 64: over 240 seeds the number",
    ),
    ("Quantize", "always the same draws"): (
        'np.random.default_rng(x["seed"])',
        "np.random.default_rng(0)",
        "failed: tried with size 64: over 240 seeds the number",
    ),
    ("Quantize", "draws without a seed"): (
        'np.random.default_rng(x["seed"])',
        "np.random.default_rng()",
        "failed: tried with size 64: the same seeds gave different numbers in a later round",
    ),
    ("Quantize", "2^b intervals"): (
        "self.top = 2**bits - 1",
        "self.top = 2**bits",
        "failed: the update of client 1, as rebuilt: [",
    ),
    ("Quantize", "levels around zero"): (
        "low, high = update.min(), update.max()",
        "low, high = -abs(update).max(), abs(update).max()",
        "failed: the update of client 1, as rebuilt: [",
    ),
    ("Quantize", "a byte for a bit"): (
        """\
        self.send(0, np.packbits(levels[:, None] >> np.arange(self.bits) & 1))
        return None

    def rebuild(self, client):
        low, high = self.receive(client)
        digits = np.unpackbits(self.receive(client), count=self.size * self.bits).reshape(-1, self.bits)
        levels = (digits << np.arange(self.bits)).sum(axis=1)
""",
        """\
        self.send(0, levels)
        return None

    def rebuild(self, client):
        low, high = self.receive(client)
        levels = self.receive(client)
""",
        "over_target: correct, but bytes sent 4,104, and the target is 528",
    ),
    ("Rotate", "not rotated"): (
        ROTATED,
        ROTATED.replace("hadamard(self.signs(rng) * x[", "(abs(self.signs(rng)) * x[").replace(
            BACK, "abs(signs) * np.where(high_ones, high, low)"
        ),
        "failed: device 0, forward() differs ... ; it was quantized without rotation",
    ),
    ("Rotate", "signs left on"): (
        BACK,
        "hadamard(np.where(high_ones, high, low))",
        "failed: device 0, forward() differs ... ; the signs are not undone",
    ),
    ("Rotate", "not rotated back"): (
        BACK,
        "np.where(high_ones, high, low)",
        "failed: device 0, forward() differs ... ; it is still rotated",
    ),
    ("Rotate", "no signs"): (
        "(2 * rng.integers(0, 2, self.size) - 1).astype(np.float32)",
        "abs(2 * rng.integers(0, 2, self.size) - 1).astype(np.float32)",
        "failed: device 0, forward() differs ... ; H was applied without multiplying by the signs",
    ),
    ("Rotate", "H is its own inverse, almost"): (
        "v.ravel() / np.float32(np.sqrt(d))",
        "v.ravel()",
        "failed: device 0, forward() differs ... ; it is 4096 times too large",
    ),
    ("Rotate", "divided once"): (
        BACK,
        "np.float32(np.sqrt(self.size)) * " + BACK,
        "failed: device 0, forward() differs ... ; it is 64 times too large",
    ),
    ("Rotate", "a matrix"): (
        "    d, half = v.size, 1\n",
        "    d, half = v.size, 1\n    matrix = np.ones((d, d), dtype=np.float32)\n    del matrix\n",
        "over_target: correct, but peak bytes 67,",
    ),
    ("Rotate", "a byte for a bit"): (
        ROTATED,
        ROTATED.replace("np.packbits(high_ones)", "high_ones.astype(np.uint8)").replace(
            "np.unpackbits(self.receive(client), count=self.size)", "self.receive(client)"
        ),
        "over_target: correct, but bytes sent 4,112, and the target is 536",
    ),
}
