"""FindTheRace: a dispatch that gives wrong results only if a put lands late."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import OPENSHMEM

PUZZLE = EnginePuzzle(
    slug="FindTheRace",
    title="Find the read that comes before the put",
    targets={
        "sent": 1_080,
        "messages": 4,
        "receives": 0,
        "collectives": 2,
        "barriers": 2,
        "flops": 42_312,
        "weights": 11_008,
    },
    arithmetic="""\
As in ExactDispatch, 1,056 B, and the all-reduce of 4 probabilities, 2 x 3/4 x 16 = 24 B: 1,080 B. A barrier sends
nothing; two are enough. The mean of 4 probabilities takes 2 x 4 = 8 flops more: 42,312.
""",
    statement="""\
A colleague has written ExactDispatch, and added 'share', the mean probabilities of the experts, which a balance loss
needs. They are summed while the rows are in flight. The program has passed every test for weeks. Last night, on a busy
network, one device got wrong outputs.

Here the program is tried on several networks. On the first, all rows arrive immediately. On the others, the rows that
some devices put arrive late: at the next barrier, which is all that `send_async` promises. A correct program behaves
the same on all of them.

Find the race and fix it. The starter is the complete program. Remove the line that raises NotImplementedError, and
grade it unchanged to see what happens. `forward` returns 'out', (8, 16), and 'share', (4,).

`params` holds 'router/weights' (16, 4) and, for each expert i, 'expert_i/w0' (16, 64) and 'expert_i/w1' (64, 16).
""",
    starter='''\
class FindTheRace(ShardedEngine):
    """Correct only while the network is fast."""

    def __init__(self, model_dim, hidden_dim, tokens):
        raise NotImplementedError  # take this line out to begin
        n = self.num_devices
        self.router = np.zeros((model_dim, n), dtype=np.float32)
        self.w0 = np.zeros((model_dim, hidden_dim), dtype=np.float32)
        self.w1 = np.zeros((hidden_dim, model_dim), dtype=np.float32)
        self.inbox = self.symmetric((n * tokens, model_dim))
        self.back = self.symmetric((tokens, model_dim))

    def load_checkpoint(self, params):
        self.router[...] = params["router/weights"]
        self.w0[...] = params[f"expert_{self.device_id}/w0"]
        self.w1[...] = params[f"expert_{self.device_id}/w1"]

    def forward(self, x):
        me, n = self.device_id, self.num_devices
        logits = x @ self.router
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = p / p.sum(axis=1, keepdims=True)
        chosen = p.argmax(axis=1)
        order = np.argsort(chosen, kind="stable")
        counts = self.all_gather(np.bincount(chosen, minlength=n).astype(np.int32)[None])
        at = counts.cumsum(axis=0) - counts
        home = counts.cumsum(axis=1) - counts

        rows = x[order]
        for e in range(n):
            count = counts[me, e]
            self.put(rows[home[me, e] :][:count], self.inbox[at[me, e] :][:count], e)
        # While the rows are in flight: the mean probabilities that the balance loss asks for.
        share = self.all_reduce(p.sum(axis=0)) / counts.sum(dtype=p.dtype)
        made = np.maximum(self.inbox[: counts[:, me].sum()] @ self.w0, 0) @ self.w1
        for source in range(n):
            count = counts[source, me]
            self.put(made[at[source, me] :][:count], self.back[home[source, me] :][:count], source)
        self.barrier()
        x[order] += p.max(axis=1)[order, None] * self.back
        return {"out": x, "share": share}

    def put(self, rows, place, device):
        if device == self.device_id:
            place[...] = rows
        elif len(rows):
            self.send_async(rows, place, device).wait()

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "Which calls wait between a put and the first read of the data? What exactly does each of them wait for?",
        (
            "The future of `send_async` is done when `rows` may be overwritten, not when they have arrived. And an "
            "all-reduce finishes when all devices have contributed their numbers; it does not wait for puts."
        ),
        (
            "Every device reads its inbox in the line that starts with `made`. Only `self.barrier()` just before it "
            "guarantees that the rows have arrived."
        ),
    ),
    concept="""\
The all-reduce made every device wait until all others had issued their puts, so on a fast network the rows had always
arrived. But nothing guaranteed that. A race is a bug even while it gives correct results: it depends on an order that
nothing enforces.

So test programs under an adverse schedule. In process, `launch(..., late_puts=(2,))` delays what device 2
puts until the barrier. The rare failure then happens in every run.
""",
    in_practice="""\
OpenSHMEM (Chapman et al. 2010) makes the same distinction. A put returns when its source may be reused;
`shmem_barrier_all` waits for all devices and for their puts, `shmem_sync_all` only for the devices. NVSHMEM has the
same calls for GPUs.
""",
    sources=(OPENSHMEM,),
)
