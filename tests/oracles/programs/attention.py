"""Random programs of attention on shares of tokens, and how long they take: one list of actions, followed twice.

Every rank has all weights and some of the tokens, in one or two chunks. Key-value blocks go to all who see them, in
messages; gradients of blocks come back to their owners. What one action needs comes before it in the list, so that
ranks can follow it without waiting for ever, and a simulator can add up its time in a few plain lines.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from math import ceil
from operator import add
from random import Random
from typing import Any, NamedTuple

Chunk = tuple[int, ...]


class Action(NamedTuple):
    """One call of a rank: in a layer, of microbatches, with the tokens of a chunk and of other chunks; or a message."""

    rank: int
    name: str
    layer: int
    batch: tuple[int, ...]
    chunk: Chunk
    others: tuple[Chunk, ...] = ()
    to: int = 0


class Program:
    """A random program, with its `size` and number of `shares`; a packed one with `lengths` of its microbatches."""

    def __init__(self, seed: int, packed: bool = False) -> None:
        self.choice = choice = Random(seed)
        self.ranks = ranks = choice.choice((1, 2, 3))
        self.shares = choice.choice([n for n in (2, 3, 4, 6) if n >= ranks])
        self.size = choice.choice((1, 2)), choice.choice((1, 2)), ranks
        tokens = choice.sample(range(self.shares), self.shares)
        cuts = sorted(choice.sample(range(1, self.shares), min(self.shares - 1, ranks - 1 + choice.randrange(2))))
        parts = [tuple(sorted(tokens[a:b])) for a, b in zip([0, *cuts], [*cuts, self.shares])]
        self.owner: dict[Chunk, int] = {part: i % ranks for i, part in enumerate(parts)}
        batches = range(self.size[1])
        self.lengths = [Fraction(choice.randint(1, 4), 4) for _ in batches] if packed else []
        together = packed and len(batches) > 1 and choice.random() < 0.5
        self.groups: list[tuple[int, ...]] = [(*batches,)] if together else [(batch,) for batch in batches]
        """The microbatches that each call takes at once."""
        self.actions = [*self._actions()]

    def _seen(self, chunk: Chunk) -> list[Chunk]:
        return [other for other in self.owner if min(other) <= max(chunk)]

    def _groups(self, chunk: Chunk) -> Iterator[tuple[Chunk, ...]]:
        """The blocks that a chunk sees, in any order, some of them together."""
        blocks = self.choice.sample(self._seen(chunk), len(self._seen(chunk)))
        while blocks:
            n = self.choice.randint(1, len(blocks))
            yield tuple(blocks[:n])
            del blocks[:n]

    def _actions(self) -> Iterator[Action]:
        layers = self.size[0]
        for batch in self.groups:
            for layer in range(layers):
                for chunk, rank in self.owner.items():
                    yield Action(rank, "keys", layer, batch, chunk)
                for chunk, rank in self.owner.items():
                    readers = {self.owner[other] for other in self.owner if chunk in self._seen(other)} - {rank}
                    for reader in sorted(readers):
                        yield Action(rank, "send keys", layer, batch, chunk, to=reader)
                        yield Action(reader, "receive keys", layer, batch, chunk, to=rank)
                for chunk, rank in self.owner.items():
                    for group in self._groups(chunk):
                        how = self.choice.choice(("attend", "attend into"))
                        yield Action(rank, how, layer, batch, chunk, group)
            for layer in reversed(range(layers)):
                for chunk, rank in self.owner.items():
                    for group in self._groups(chunk):
                        yield Action(rank, "attend_backward", layer, batch, chunk, group)
                        for block in group:
                            if self.owner[block] != rank:
                                yield Action(rank, "send gradient", layer, batch, chunk, (block,), self.owner[block])
                                yield Action(self.owner[block], "receive gradient", layer, batch, chunk, (block,), rank)
                for chunk, rank in self.owner.items():
                    yield Action(rank, "keys_backward", layer, batch, chunk)

    # --- By the game ---

    def schedule(self) -> Callable[[Any], Any]:
        async def schedule(model: Any) -> None:
            loaded = [model.load_weights(layer) for layer in range(model.LAYERS)]
            held: dict[tuple[Any, ...], Any] = {}
            sums: dict[int, Any] = {}

            def more(key: tuple[Any, ...], value: Any) -> None:
                held[key] = held[key] + value if key in held else value

            for at, (rank, name, layer, batch, chunk, others, to) in enumerate(self.actions):
                if rank != model.rank:
                    continue
                weight, own = loaded[layer][0], (layer, batch, chunk)
                if name == "keys":
                    if layer == 0:
                        held["x", *own] = model.get_activation(batch, shares=chunk)
                    held["kv", *own] = model.keys(layer, held["x", *own], weight)
                elif name == "send keys":
                    await model.pass_to(to, held["kv", *own], tag=at + 1)
                elif name == "receive keys":
                    held["kv", *own] = await model.receive(to, tag=at)
                elif name.startswith("attend") and name != "attend_backward":
                    blocks, key = [held["kv", layer, batch, other] for other in others], ("x", layer + 1, batch, chunk)
                    if name == "attend into":
                        held[key] = model.attend(layer, held["x", *own], blocks, held.get(key))
                    else:
                        more(key, model.attend(layer, held["x", *own], blocks))
                elif name == "attend_backward":
                    if layer == model.LAYERS - 1 and ("g", *own) not in held:
                        held["g", *own] = model.loss(held["x", layer + 1, batch, chunk])
                    blocks = [held["kv", layer, batch, other] for other in others]
                    through, made = model.attend_backward(layer, held["x", *own], blocks, held["g", *own])
                    more(("dq", *own), through)
                    for other, part in zip(others, made):
                        if self.owner[other] == rank:
                            more(("dkv", layer, batch, other), part)
                        else:
                            held["sent", chunk, other] = part
                elif name == "send gradient":
                    await model.pass_to(to, held["sent", chunk, others[0]], tag=at + 1)
                elif name == "receive gradient":
                    more(("dkv", layer, batch, others[0]), await model.receive(to, tag=at))
                else:
                    grad, before = model.keys_backward(
                        layer, held["x", *own], held["dkv", *own], weight, held["dq", *own]
                    )
                    held["g", layer - 1, batch, chunk] = before
                    sums[layer] = sums[layer] + grad if layer in sums else grad
            for layer, (weight, state) in enumerate(loaded):
                if model.RANKS > 1:
                    sums[layer] = await model.allreduce(sums[layer], layer)
                model.set_final_weight(layer, model.update(layer, sums[layer], weight, state)[0])

        return schedule

    # --- By a second simulator ---

    def simulated(self, costs: Any) -> tuple[int, int]:
        """Ticks until the end, and the elements that the busiest rank sends."""
        clock, sent = [0] * self.ranks, [0] * self.ranks
        arrived = 0
        price = costs.ticks
        for rank, name, _, batches, chunk, others, _ in self.actions:
            lengths = [self.lengths[batch] if self.lengths else Fraction(1) for batch in batches]
            if name.startswith("send"):
                clock[rank] += price["pass_to"]
                arrived = clock[rank]
                block = others[0] if others else chunk
                sent[rank] += sum(int(2 * costs.activation * length) * len(block) // self.shares for length in lengths)
            elif name.startswith("receive"):
                clock[rank] = max(clock[rank], arrived) + price["receive"]
            elif name.startswith("keys"):
                once = sum(ceil(price["keys"] * length * len(chunk) / self.shares) for length in lengths)
                clock[rank] += once * (2 if name == "keys_backward" else 1)
            else:
                pairs = [1 if q == k else 2 for q in chunk for other in others for k in other if k <= q]
                share = Fraction(reduce(add, pairs, 0), self.shares**2)
                once = sum(ceil(price["attend"] * share * length * length) for length in lengths)
                clock[rank] += once * (2 if name == "attend_backward" else 1)
        end, layers = max(clock), self.size[0]
        if self.ranks > 1:
            end += layers * price["allreduce"]
            sent = [one + layers * (2 * (self.ranks - 1) * costs.weight // self.ranks) for one in sent]
        return end, max(sent)


class Step(NamedTuple):
    """One call of a rank of a group, about the tokens of that group or of the group `of`; or a message from or to the
    rank in the same place of another group."""

    rank: int
    name: str
    layer: int
    batch: int
    of: int = 0


class Grouped:
    """A random program in which pairs of ranks exchange tokens for heads, and one or two pairs exchange blocks of these
    heads, with its `size` and number of `shares`."""

    def __init__(self, seed: int) -> None:
        self.choice = choice = Random(seed)
        pairs = choice.choice((1, 2, 2))
        self.shares = choice.choice((4, 8))
        self.size = choice.choice((1, 2)), choice.choice((1, 2)), 2 * pairs
        tokens = choice.sample(range(self.shares), self.shares)
        cut = choice.randrange(2, self.shares, 2) if pairs > 1 else self.shares
        self.tokens = [tuple(sorted(part)) for part in (tokens[:cut], tokens[cut:]) if part]
        """Of each pair."""
        self.steps = [*self._steps()]

    def own(self, rank: int) -> Chunk:
        tokens = self.tokens[rank // 2]
        half = len(tokens) // 2
        return tokens[rank % 2 * half :][:half]

    def _seen(self, pair: int) -> list[int]:
        """The pairs whose keys a pair sees, in any order."""
        seen = [other for other, keys in enumerate(self.tokens) if keys[0] <= self.tokens[pair][-1]]
        return self.choice.sample(seen, len(seen))

    def _steps(self) -> Iterator[Step]:
        layers, batches, ranks = self.size
        orders = [self._seen(pair) for pair in range(len(self.tokens))]
        for batch in range(batches):
            for layer in range(layers):
                for name in ("keys", "heads x", "heads kv"):
                    yield from (Step(rank, name, layer, batch) for rank in range(ranks))
                for rank in range(ranks):
                    for of in orders[rank // 2]:
                        if of != rank // 2:
                            yield Step(2 * of + rank % 2, "send kv", layer, batch, rank // 2)
                            yield Step(rank, "receive kv", layer, batch, of)
                for rank in range(ranks):
                    yield from (Step(rank, "attend", layer, batch, of) for of in orders[rank // 2])
                yield from (Step(rank, "tokens out", layer, batch) for rank in range(ranks))
            for layer in reversed(range(layers)):
                yield from (Step(rank, "heads grad", layer, batch) for rank in range(ranks))
                for rank in range(ranks):
                    for of in orders[rank // 2]:
                        yield Step(rank, "attend_backward", layer, batch, of)
                        if of != rank // 2:
                            yield Step(rank, "send dkv", layer, batch, of)
                            yield Step(2 * of + rank % 2, "receive dkv", layer, batch, rank // 2)
                for name in ("tokens dkv", "tokens dq", "keys_backward"):
                    yield from (Step(rank, name, layer, batch) for rank in range(ranks))

    def schedule(self) -> Callable[[Any], Any]:
        async def schedule(model: Any) -> None:
            loaded = [model.load_weights(layer) for layer in range(model.LAYERS)]
            pair, sums, held = model.rank // 2, dict[int, Any](), dict[Any, Any]()
            group = [2 * pair, 2 * pair + 1]

            def more(key: object, value: Any) -> None:
                held[key] = held[key] + value if key in held else value

            for at, (rank, name, layer, batch, of) in enumerate(self.steps):
                if rank != model.rank:
                    continue
                weight, (call, _, what), peer = loaded[layer][0], name.partition(" "), 2 * of + rank % 2
                if name == "keys":
                    if not layer:
                        held["x", 0] = model.get_activation([batch], shares=self.own(rank))
                    held["kv"] = model.keys(layer, held["x", layer], weight)
                elif name == "heads x":
                    held["q", layer] = await model.heads(held["x", layer], layer, group=group)
                elif name == "heads kv":
                    held["kv", layer, pair] = await model.heads(held.pop("kv"), layer, group=group)
                elif call == "send":
                    value = held["kv", layer, pair] if what == "kv" else held.pop("sent")
                    await model.pass_to(peer, value, tag=at + 1)
                elif name == "receive kv":
                    held["kv", layer, of] = await model.receive(peer, tag=at)
                elif name == "receive dkv":
                    more("dkv", await model.receive(peer, tag=at))
                elif name == "attend":
                    more("out", model.attend(layer, held["q", layer], [held["kv", layer, of]]))
                elif name == "tokens out":
                    held["x", layer + 1] = await model.tokens(held.pop("out"), layer + 1, group=group)
                elif name == "heads grad":
                    grad = held.pop("grad") if layer < model.LAYERS - 1 else model.loss(held["x", layer + 1])
                    held["g"] = await model.heads(grad, layer, group=group)
                elif name == "attend_backward":
                    through, (part,) = model.attend_backward(
                        layer, held["q", layer], [held["kv", layer, of]], held["g"]
                    )
                    more("dq", through)
                    if of == pair:
                        more("dkv", part)
                    else:
                        held["sent"] = part
                elif call == "tokens":
                    held[what] = await model.tokens(held[what], layer - (what == "dq"), group=group)
                else:
                    inp, of_keys, through = held["x", layer], held.pop("dkv"), held.pop("dq")
                    grad, held["grad"] = model.keys_backward(layer, inp, of_keys, weight, through)
                    sums[layer] = sums[layer] + grad if layer in sums else grad
            for layer, (weight, state) in enumerate(loaded):
                total = await model.allreduce(sums[layer], layer)
                model.set_final_weight(layer, model.update(layer, total, weight, state)[0])

        return schedule

    def simulated(self, costs: Any) -> tuple[int, int]:
        """Ticks until the end, and the elements that the busiest rank sends."""
        layers, _, ranks = self.size
        clock, sent, arrived, price = [0] * ranks, [0] * ranks, 0, costs.ticks
        for rank, name, _, _, of in self.steps:
            call, _, what = name.partition(" ")
            pair, kinds = rank // 2, 1 + (what in ("kv", "dkv"))
            elements = kinds * costs.activation * len(self.own(rank)) // self.shares
            if call in ("heads", "tokens"):
                sent[rank] += elements // 2
                if rank % 2:  # both are there
                    clock[rank - 1 : rank + 1] = [max(clock[rank - 1 : rank + 1]) + price[call]] * 2
            elif call == "send":
                tokens = self.tokens[pair if what == "kv" else of]
                sent[rank] += costs.activation * len(tokens) // self.shares  # half of the heads of two activations
                arrived = clock[rank] = clock[rank] + price["pass_to"]
            elif call == "receive":
                clock[rank] = max(clock[rank], arrived) + price["receive"]
            elif call.startswith("keys"):
                once = ceil(Fraction(price["keys"] * len(self.own(rank)), self.shares))
                clock[rank] += once * (2 if name == "keys_backward" else 1)
            else:
                pairs = [1 if q == k else 2 for q in self.tokens[pair] for k in self.tokens[of] if k <= q]
                once = ceil(Fraction(price["attend"] * sum(pairs), 2 * self.shares**2))
                clock[rank] += once * (2 if name == "attend_backward" else 1)
        all_reduces = 2 * (ranks - 1) * costs.weight // ranks
        return max(clock) + layers * price["allreduce"], max(sent) + layers * all_reduces
