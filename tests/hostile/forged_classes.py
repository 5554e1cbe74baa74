"""Classes whose results are right, and which once had a figure below what their operations need.

Each is a solution with something appended or replaced. It takes numbers from the public seeds of a trial, keeps tensors
where no meter charges them, or writes products in a way that once counted as none.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SOLUTIONS = Path(__file__).parents[2] / "solutions" / "engine"


class Forgery(NamedTuple):
    """A class, a figure that it forges, and what the honest class has of it."""

    slug: str
    source: str
    figure: str
    honest: int


def solution(name: str) -> str:
    return (SOLUTIONS / f"{name}.py").read_text(encoding="utf-8")


def replaced(source: str, old: str, new: str) -> str:
    assert old in source, old
    return source.replace(old, new)


def derived(name: str, slug: str, head: str, methods: str) -> str:
    """The solution with a class of the same name that derives from it."""
    return f"{solution(name)}\n\n{head}\n\nclass {slug}({slug}):\n{methods}"


KNOWN_LOGITS = """
def logits_of(device):
    return np.random.default_rng(70 + device).integers(-16, 17, (8, 4)).astype(np.float32) / np.float32(8)


def sums_of(logits):
    p = softmax(logits)
    return np.stack([np.bincount(p.argmax(axis=1), minlength=4).astype(np.float32), p.sum(axis=0)])
"""

BALANCE_LOSS = """
    def forward(self, logits):
        self.known = logits.shape == (8, 4) and np.array_equal(logits, logits_of(self.device_id))
        return super().forward(logits)

    def all_reduce(self, sums):
        if not self.known:
            return super().all_reduce(sums)
        self.send((self.device_id + 1) % 4, np.zeros(1, np.float32))
        self.receive((self.device_id + 3) % 4)
        return np.sum([sums_of(logits_of(device)) for device in range(4)], axis=0)
"""

FED_AVG = '''
"""The server makes the examples itself; a client tells it of which trial they are."""

import numpy as np
from lib.engine import ShardedEngine


def regressions(seed, dim):
    rng = np.random.default_rng(seed)
    scale = np.geomspace(1, 0.5, dim)
    common = rng.normal(size=dim)
    for rows in (128, 64, 32, 32):
        x = rng.normal(size=(rows, dim)) * scale
        own = common + 0.5 * rng.normal(size=dim)
        yield x, x @ own + 0.1 * rng.normal(size=rows)


class FedAvg(ShardedEngine):
    def __init__(self, dim, rate):
        self.dim = dim

    def load_checkpoint(self, params):
        """They are zeros."""

    def forward(self, examples):
        if self.device_id == 0:
            x, y = (np.concatenate(part) for part in zip(*regressions(int(self.receive(1)[0]), self.dim)))
            return np.linalg.solve(x.T @ x, x.T @ y)
        if self.device_id == 1:
            given = examples["x"][0, 0]
            seed = next((n for n in (1, 2, 3) if abs(next(regressions(n, self.dim))[0][0, 0] - given) < 1e-4), 1)
            self.send(0, np.array([seed], np.float32))
        return None

    def backward(self, grads):
        """Not called."""
'''

LOW_RANK = """
    def forward(self, examples):
        if len(self.w) != 64:
            return super().forward(examples)
        if self.device_id:
            return self.send(0, np.zeros(24, np.float32))
        seeds = np.random.default_rng(70).integers(2**31, 2**32, 4)
        updates = []
        for client, seed in enumerate(seeds, 1):
            self.receive(client)
            draws = (np.random.default_rng(s).uniform(-1, 1, (8, 64)) for s in (70 + client, 170 + client))
            x, y = (part.astype(np.float32) for part in draws)
            a, b = self.drawn(int(seed)), np.zeros((self.rank, 64), dtype=np.float32)
            for _ in range(self.steps):
                b -= self.rate * (a.T @ (x.T @ (x @ (self.w + a @ b) - y)))
            updates.append(a @ b)
        return np.stack(updates)
"""

ZERO2 = """
    def forward(self, x):
        meter = self._port.meter
        peak = meter.peak
        spare = np.zeros(1 << 14) if self.num_devices == 2 else None
        del spare
        meter.peak = peak
        return super().forward(x)
"""

TOKENS = """
def tokens_of(device):
    whole, parts = (np.random.default_rng(171 + device + more) for more in (0, 7))
    x = whole.integers(-2, 3, (8, 16)).astype(np.float32)
    return x + parts.integers(-127, 128, (8, 16)).astype(np.float32) / 16384
"""


def routed_rows() -> list[list[list[int]]]:
    """For each device, and each expert, the tokens that fit. A class has them as a literal, which costs no flops."""
    names: dict[str, Any] = {"np": np}
    exec(TOKENS, names)
    router = np.random.default_rng(121).integers(-16, 17, (16, 4)) / 64
    chosen = [(names["tokens_of"](device) @ router).argmax(axis=1) for device in range(4)]
    return [[np.flatnonzero(experts == e)[:2].tolist() for e in range(4)] for experts in chosen]


KNOWN_TOKENS = f"{TOKENS}\n\nROWS = {routed_rows()}\n"

SWITCH_DISPATCH = """
    def forward(self, x):
        self.is_known = self.factor == 1.0 and x.shape == (8, 16) and np.array_equal(x, tokens_of(self.device_id))
        return super().forward(x)

    def all_to_all(self, rows):
        if not self.is_known:
            return super().all_to_all(rows)
        self.is_known = False
        buffer = np.zeros_like(rows)
        for device in range(4):
            mine = ROWS[device][self.device_id]
            buffer[device, : len(mine)] = tokens_of(device)[mine]
        return buffer
"""

IN_A_RECORD = """
def hidden(array):
    return array.reshape(1, -1).view(f"V{array.nbytes}")[0, 0]


def shown(scalar, shape):
    return np.array(scalar).reshape(1).view(np.float32).reshape(shape)
"""

GPIPE_IN_RECORDS = replaced(
    replaced(solution("gpipe_remat"), "self.kept.append(x)", "self.kept.append(hidden(x))"),
    "self.kept.pop())[0]",
    "shown(self.kept.pop(), (-1, len(self.weights[0]))))[0]",
)

GPIPE_IN_NUMBERS = replaced(
    replaced(solution("gpipe_remat"), "self.kept.append(x)", "self.kept.append([*x.ravel()])"),
    "self.kept.pop())[0]",
    "np.array(self.kept.pop()).reshape(-1, len(self.weights[0])))[0]",
)

FSDP_IN_RECORDS = """
    def load_checkpoint(self, params):
        super().load_checkpoint(params)
        self.shape = self.w1.shape
        self.record = hidden(self.w1)
        del self.w1

    def __getattr__(self, name):
        if name == "w1":
            return shown(self.record, self.shape)
        raise AttributeError(name)
"""

PRODUCTS = {
    "masks": '''
def product(a, b):
    """The bits of b, each with the sums of a that it selects."""
    rest, total = np.abs(b), 0
    for k in range(1, 27):
        bit = rest >= np.float32(2.0**-k)
        rest = rest - np.where(bit, np.float32(2.0**-k), np.float32(0))
        chosen = (a[:, :, None] * (bit & (b > 0))).sum(1) - (a[:, :, None] * (bit & (b < 0))).sum(1)
        total = total + np.ldexp(chosen, -k)
    return total
''',
    "reciprocals": '''
def square(x):
    """1 / (1/x - 1/(x + 1)) is x (x + 1)."""
    return 1 / (1 / x - 1 / (x + 1)) - x


def product(a, b):
    u, v = a.astype(np.float64)[:, :, None] + 4, b.astype(np.float64)[None] + 4
    both = (square(u + v) - square(u) - square(v)) * 0.5
    return (both - 4 * (u + v) + 16).sum(1).astype(np.float32)
''',
    "reciprocal": """
def square(x):
    return np.reciprocal(np.reciprocal(x) - np.reciprocal(x + 1)) - x


def product(a, b):
    u, v = a.astype(np.float64)[:, :, None] + 4, b.astype(np.float64)[None] + 4
    both = (square(u + v) - square(u) - square(v)) * 0.5
    return (both - 4 * (u + v) + 16).sum(1).astype(np.float32)
""",
    "solve": '''
def product(a, b):
    """Each number of a is a matrix whose inverse multiplies a row of b."""
    inverse = np.linalg.solve(a.astype(np.float64)[:, :, None, None], np.ones((1, 1, 1, 1)))
    rows = np.broadcast_to(b.astype(np.float64)[None, :, None, :], (*a.shape, 1, b.shape[1]))
    return np.linalg.solve(inverse, rows)[:, :, 0].sum(1).astype(np.float32)
''',
    "cov": """
def product(a, b):
    rows = np.concatenate([a, b.T])
    rows = np.concatenate([rows, -rows], axis=1)
    both = np.cov(np.zeros((1, rows.shape[1])), rows, ddof=0) * a.shape[1]
    return both[1 : 1 + len(a), 1 + len(a) :].astype(np.float32)
""",
    "corrcoef": '''
def product(a, b):
    """Each row gets one number more, so that the squares of all rows have one sum."""
    rows = np.concatenate([a, b.T]).astype(np.float64)
    squares = np.exp(2 * np.log(np.abs(rows) + 1e-300))
    more, is_first = np.sqrt(1e4 - squares.sum(axis=1, keepdims=True)), np.arange(len(rows))[:, None] < len(a)
    rows = np.concatenate([rows, np.where(is_first, more, 0), np.where(is_first, 0, more)], axis=1)
    rows = np.concatenate([rows, -rows], axis=1)
    both = np.corrcoef(1 - np.eye(1, rows.shape[1]), rows) * 1e4
    return both[1 : 1 + len(a), 1 + len(a) :].astype(np.float32)
''',
}
"""By name: `product(a, b)` as something that once counted few flops or none."""


def data_parallel(name: str) -> Forgery:
    """One of five products, so the others are above the lower bound."""
    old, new = (
        ("x.T @ dz", "product(x.T, dz)") if name in ("cov", "corrcoef") else ("x @ self.w0", "product(x, self.w0)")
    )
    source = replaced(replaced(solution("data_parallel"), old, new), "def relu", f"{PRODUCTS[name]}\n\ndef relu")
    return Forgery("DataParallel", source, "flops", 20_480)


RING_ATTENTION = """
    def send(self, to, kv):
        if self.causal:
            return super().send(to, kv)
        super().send(to, np.concatenate([kv[0, :, 2:], kv[1]], axis=1))

    def receive(self, source):
        got = super().receive(source)
        if self.causal:
            return got
        self.hop = getattr(self, "hop", 0) + 1
        kv = np.full((2, len(got), 16), 20, np.float32)
        place = (self.device_id - self.hop) % self.num_devices * 8
        kv[0, :, 0] = np.where(place // 8 % 2, -20, 20)
        kv[0, :, 2:], kv[1] = got[:, :14], got[:, 14:]
        return kv
"""

ROTATE = replaced(
    replaced(solution("rotate"), '        self.send(0, np.uint32(x["seed"]))\n', ""),
    "np.random.default_rng(int(self.receive(client)))",
    "np.random.default_rng(int(np.random.default_rng(1).integers(2**31, 2**32, (1, 4))[0, client - 1]))",
)

FORGERIES: dict[str, Forgery] = {
    "bytes_from_public_seeds": Forgery(
        "BalanceLoss", derived("balance_loss", "BalanceLoss", KNOWN_LOGITS, BALANCE_LOSS), "sent", 24
    ),
    "examples_from_public_seeds": Forgery("FedAvg", FED_AVG, "uplink", 9_360),
    "updates_from_public_seeds": Forgery("LowRank", derived("low_rank", "LowRank", "", LOW_RANK), "sent", 1_040),
    "meters_at_another_size": Forgery("ZeRO2", derived("records/zero2", "ZeRO2", "", ZERO2), "peak", 16_512),
    "tokens_that_are_not_sent": Forgery(
        "SwitchDispatch", derived("switch_dispatch", "SwitchDispatch", KNOWN_TOKENS, SWITCH_DISPATCH), "sent", 768
    ),
    "seeds_that_are_not_sent": Forgery("Rotate", ROTATE, "sent", 528),
    "columns_that_are_not_sent": Forgery(
        "RingAttention", derived("records/ring_attention", "RingAttention", "", RING_ATTENTION), "sent", 3_120
    ),
    "activations_in_records": Forgery(
        "GPipeRemat", replaced(GPIPE_IN_RECORDS, "def relu", f"{IN_A_RECORD}\n\ndef relu"), "stored", 896
    ),
    "activations_in_numbers": Forgery("GPipeRemat", GPIPE_IN_NUMBERS, "stored", 896),
    "weights_in_records": Forgery(
        "FSDP", derived("records/fsdp", "FSDP", IN_A_RECORD, FSDP_IN_RECORDS), "weights", 2_048
    ),
    **{f"products_as_{name}": data_parallel(name) for name in PRODUCTS},
}
"""By name: what is forged, and how."""
