"""Random training: microbatches through the stages of a pipeline, with weights that are cut and sharded, to the end."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from random import Random

from .prices import Piece
from .writer import Task, Writer

Held = dict[int, int]
"""By rank, the number of a value."""


class Training(Writer):
    """Trains all layers in all steps; each layer is on one stage, its weight sharded over some replicas or none."""

    def __init__(self, choice: Random, frozen: bool = False, whole: bool = False) -> None:
        super().__init__(choice, frozen, whole)
        self.stage = [choice.randrange(self.mesh["pp"]) for _ in range(self.layers)]
        shards: list[tuple[str, ...]] = [()] if whole else [(), ("in",), ("out", "in")]
        self.sharded = [choice.choice(shards) for _ in range(self.layers)]
        self._own: dict[tuple[int, int, int], tuple[int, int]] = {}
        """By rank, layer and step: its shard of the weight, and of the optimizer state."""
        self._whole: dict[tuple[int, int, int], int | None] = {}
        """By the same: a weight to compute with; None while it is gathered."""
        self._grads: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self.version = [max(0, step - choice.randint(0, self.lag)) for step in range(self.steps)]
        """By step: that of the weights that compute."""
        self._missing: dict[tuple[int, int], int] = defaultdict(int)
        """By layer and step: how many gradients are not computed yet."""
        self.clip = choice.random() < 0.3 and not frozen
        self._norms: dict[tuple[int, int], list[int]] = defaultdict(list)
        """By step and rank: the norms of its layers that are there."""
        self._scales: dict[int, Held] = {}
        """By step: the norm of all layers."""

    def train(self) -> None:
        for layer in range(self.layers):
            for rank, place in enumerate(self.places):
                if place[2] == self.stage[layer]:
                    self.late(self._load(rank, layer))
        for step in range(self.steps):
            batches = self.choice.sample(range(self.batches), self.batches)
            while batches:
                some = tuple(sorted(batches.pop() for _ in range(min(self.choice.choice((1, 1, 2)), len(batches)))))
                replica = self.choice.choice(self.places)[:2]
                for layer in self._trained():
                    self._missing[layer, step] += self.cut
                self.tasks.append(self._microbatch(step, some, replica))
            self._plan_reductions(step)

    def _trained(self) -> list[int]:
        return [layer for layer in range(self.layers) if layer not in self.frozen]

    def _plan_reductions(self, step: int) -> None:
        buckets: dict[object, list[int]] = {}
        for layer in self._trained():
            alike = self.stage[layer], self.sharded[layer], self.prices.overlap and self.choice.random() < 0.6
            buckets.setdefault(alike if alike[-1] else layer, []).append(layer)
        for layers in buckets.values():
            self.tasks.append(self._reduced(step, layers))

    def _ranks(self, layer: int, replica: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            rank for rank, at in enumerate(self.places) if at[:2] == tuple(replica) and at[2] == self.stage[layer]
        )

    # --- Weights ---

    def _load(self, rank: int, layer: int) -> Task[None]:
        group, place = self.along(rank, self.sharded[layer]), self.places[rank][3]
        n, i = self.cut * len(group), place * len(group) + group.index(rank)
        tier = self.choice.choice(("", "", "host"))
        pieces = [Piece(kind, 1, (i,), n, tier) for kind in ("weight", "state")]
        made = self.do(rank, "load_weights", makes=pieces, layer=layer, shard=(i, n), tier=tier)
        if tier:
            for at in (0, 1):
                made[at] = yield from self.copied(rank, "fetch", made[at])
        self._own[rank, layer, 0] = made[0], made[1]

    def _weights(self, layer: int, step: int, ranks: Sequence[int]) -> Task[Held]:
        """A weight to compute with on each of some ranks, gathered if it is not there; a frozen one is never newer."""
        step = 0 if layer in self.frozen else step
        while any(self._whole.get((rank, layer, step)) is None for rank in ranks):
            for rank in ranks:
                if (rank, layer, step) not in self._whole:
                    self._gather(self.along(rank, self.sharded[layer]), layer, step)
            yield
        return {rank: self._whole[rank, layer, step] or 0 for rank in ranks}

    def _gather(self, group: Sequence[int], layer: int, step: int) -> None:
        keys = [(rank, layer, step) for rank in group]
        if any(key not in self._own or self._whole.get(key, 0) is None for key in keys):
            return
        own = {rank: [self._own[rank, layer, step][0]] for rank in group}
        if len(group) == 1 and self.choice.random() < 0.8:
            self._whole[keys[0]] = own[group[0]][0]
            return
        self._whole |= dict.fromkeys(keys)
        place = self.places[group[0]][3]
        calls = self.together(
            "allgather", group, own, lambda i, piece: piece._replace(shards=(place,), total=self.cut), layer=layer
        )

        def gathered(rank: int) -> Task[None]:
            made = yield from self.results({rank: calls[rank]})
            self._whole[rank, layer, step] = self.keep(rank, *made[rank])

        self.tasks += map(gathered, group)

    def _release(self, rank: int, layer: int, step: int) -> None:
        key = rank, layer, 0 if layer in self.frozen else step
        if self.choice.random() < 0.3 and self._whole.get(key) not in (None, self._own[key][0]):
            self.drop(rank, self._whole.pop(key) or 0)

    # --- Microbatches ---

    def _microbatch(self, step: int, batches: tuple[int, ...], replica: Sequence[int]) -> Task[None]:
        n, inputs, parked = len(batches), dict[int, Held](), set[int]()
        acts: Held = {}
        for rank in self._ranks(0, replica):
            (made,) = self.do(rank, "get_activation", makes=[Piece("act", n)], batches=batches, step=step)
            acts[rank] = self.keep(rank, made)
        for layer in range(self.layers):
            ranks = self._ranks(layer, replica)
            inputs[layer] = acts = yield from self._moved(acts, ranks)
            weights, outs = (yield from self._weights(layer, self.version[step], ranks)), {}
            for rank in ranks:
                uses = acts[rank], weights[rank]
                (outs[rank],) = self.do(rank, "forward", *uses, makes=[Piece("act", n)], layer=layer, batches=batches)
                self._release(rank, layer, self.version[step])
            if self.choice.random() < 0.2:
                parked.add(layer)
                inputs[layer] = yield from self._replaced("offload", acts)
            acts = yield from self._summed(outs, layer + 1)
        grads: Held = {}
        for rank in acts:
            (made,) = self.do(
                rank, "loss", acts[rank], makes=[Piece("grad", n)], layer=self.layers - 1, batches=batches
            )
            grads[rank] = self.keep(rank, made)
            self.drop(rank, acts[rank])
        for layer in reversed(range(self.first, self.layers)):
            ranks = self._ranks(layer, replica)
            grads = yield from self._moved(grads, ranks)
            if layer in parked:
                inputs[layer] = yield from self._replaced("fetch", inputs[layer])
            weights = yield from self._weights(layer, self.version[step], ranks)
            outs = {
                rank: self._backward(rank, layer, step, batches, inputs[layer][rank], grads[rank], weights[rank])
                for rank in ranks
            }
            grads = (yield from self._summed(outs, layer - 1)) if layer > self.first else outs

    def _backward(
        self, rank: int, layer: int, step: int, batches: tuple[int, ...], inp: int, grad: int, weight: int
    ) -> int:
        """Both gradients, or that of the input now and that of the weight some time; of a frozen layer only the first,
        above frozen layers only the second."""
        out = Piece("grad", len(batches))
        own = Piece("wgrad", 1, (self.places[rank][3],), self.cut)

        def weight_half() -> Task[None]:
            uses = (inp, grad) if self.kind == "dense" else (inp, grad, weight)
            found(*self.do(rank, "backward_weight", *uses, makes=[own], layer=layer, batches=batches))
            yield

        def found(made: int) -> None:
            self._grads[rank, layer, step].append(self.keep(rank, made))
            self._missing[layer, step] -= 1
            self.drop(rank, inp)
            self.drop(rank, grad)

        more = {"layer": layer, "batches": batches}
        if layer == self.first > 0:
            self.late(weight_half())
            before = grad
        elif layer in self.frozen:
            (before,) = self.do(rank, "backward_input", inp, grad, weight, makes=[out], **more)
        elif self.choice.random() < 0.5:
            made, before = self.do(rank, "backward", inp, grad, weight, makes=[own, out], **more)
            found(made)
        else:
            (before,) = self.do(rank, "backward_input", inp, grad, weight, makes=[out], **more)
            self.late(weight_half())
        self._release(rank, layer, self.version[step])
        return before

    def _moved(self, values: Held, ranks: Sequence[int]) -> Task[Held]:
        """Values on the ranks of the next stage."""
        if {*values} == {*ranks}:
            return values
        moved: Held = {}
        for rank, to in zip(values, ranks):
            (number,) = yield from self.sent(rank, to, [values[rank]])
            moved[to] = self.keep(to, number)
            self.drop(rank, values[rank])
        return moved

    def _replaced(self, name: str, values: Held) -> Task[Held]:
        copies: Held = {}
        for rank, number in values.items():
            copies[rank] = yield from self.copied(rank, name, number)
            self.drop(rank, number)
        return copies

    def _summed(self, values: Held, layer: int) -> Task[Held]:
        """The sum of parts, by an all-reduce or by its two halves."""
        if self.cut > 1:
            ranks, uses = sorted(values), {rank: [number] for rank, number in values.items()}
            if self.choice.random() < 0.5:
                calls = self.together("allreduce", ranks, uses, lambda i, piece: piece, layer=layer)
            else:
                calls = self.together(
                    "scatterreduce",
                    ranks,
                    uses,
                    lambda i, piece: piece._replace(shards=(i,), total=self.cut),
                    layer=layer,
                )
                uses = yield from self.passed_on(calls)
                calls = self.together(
                    "allgather", ranks, uses, lambda i, piece: piece._replace(shards=(0,), total=1), layer=layer
                )
            values = {rank: made[0] for rank, made in (yield from self.results(calls)).items()}
        return {rank: self.keep(rank, number) for rank, number in values.items()}

    # --- Gradients ---

    def _reduced(self, step: int, layers: Sequence[int]) -> Task[None]:
        """Sums the gradients of some layers over all replicas, and updates their weights."""
        ranks = [rank for rank, at in enumerate(self.places) if at[2] == self.stage[layers[0]]]
        while any(self._missing[layer, step] for layer in layers) or any(
            (rank, layer, step) not in self._own for rank in ranks for layer in layers
        ):
            yield
        values = {rank: [self._sum(rank, layer, step) for layer in layers] for rank in ranks}
        scattered = self.choice.choice((self.sharded[layers[0]], ()))
        plan = ("scatterreduce", scattered), ("allreduce", {"out", "in"}.difference(scattered))
        plan = [
            (name, groups)
            for name, axes in plan
            if len((groups := sorted({self.along(rank, axes) for rank in ranks}))[0]) > 1 or self.choice.random() < 0.2
        ]
        whose = tuple(layers) if len(layers) > 1 else ()
        for name, groups in plan:
            n = len(groups[0]) if name == "scatterreduce" else 1
            calls = {}
            for group in groups:
                calls |= self.together(name, group, values, partial(_share, n), layer=layers[0], whose=whose)
            values = yield from (self.results if name == plan[-1][0] else self.passed_on)(calls)
        if self.clip:
            yield from self._normed(step, layers, values, {"tp", *scattered})
        for rank in self.choice.sample(ranks, len(ranks)):
            for layer, grad in zip(layers, values[rank]):
                yield from self._update(rank, layer, step, grad)
            yield

    def _normed(self, step: int, layers: Sequence[int], values: dict[int, list[int]], axes: set[str]) -> Task[None]:
        """Sums the squares of some layers over the ranks with their shards, and with the last of them over the stages;
        ends when the norm of all layers is there."""
        for i, layer in enumerate(layers):
            own = {
                rank: self.do(rank, "norm", grads[i], makes=[Piece("norm")], layer=layer)
                for rank, grads in values.items()
            }
            for rank, (norm,) in (yield from self._squares(own, axes)).items():
                self._norms[step, rank].append(self.keep(rank, norm))
        at_all = {(step, rank): self.stage.count(place[2]) for rank, place in enumerate(self.places)}
        if all(len(self._norms[key]) == count for key, count in at_all.items()) and step not in self._scales:
            self._scales[step] = {}
            totals = {}
            for (_, rank), count in at_all.items():
                if count:
                    first, *others = self._norms[step, rank]
                    for other in others:
                        (first,) = self.do(rank, "add", first, other, makes=[Piece("norm")])
                    totals[rank] = [first]
            for rank, (norm,) in (yield from self._squares(totals, {"pp"})).items():
                self._scales[step][rank] = norm
        while not self._scales.get(step):
            yield

    def _squares(self, own: dict[int, list[int]], axes: set[str]) -> Task[dict[int, list[int]]]:
        """Norms summed over the ranks along some axes that have any."""
        calls, alone = {}, {}
        for group in sorted({tuple(one for one in self.along(rank, [*axes]) if one in own) for rank in own}):
            if len(group) > 1 or self.choice.random() < 0.2:
                calls |= self.together("allreduce", group, own, lambda i, piece: piece)
            else:
                alone[group[0]] = own[group[0]]
        return {**alone, **(yield from self.results(calls))}

    def _sum(self, rank: int, layer: int, step: int) -> int:
        """The sum of a rank's gradients, in any order; a zero where it has none."""
        grads = self._grads.pop((rank, layer, step), [])
        if not grads:
            grads = self.do(rank, "fake_grad", makes=[Piece("wgrad")], layer=layer, step=step)
            if self.cut > 1:
                place = self.places[rank][3]
                pieces = [Piece("wgrad", 1, (place,), self.cut)]
                grads = self.do(rank, "shard", *grads, makes=pieces, shard=(place, self.cut))
        self.choice.shuffle(grads)
        total = grads[0]
        for grad in grads[1:]:
            (more,) = self.do(rank, "add", total, grad, makes=[self.piece(rank, total)])
            for number in (total, grad):
                self.drop(rank, number)
            total = self.keep(rank, more)
        return total

    def _update(self, rank: int, layer: int, step: int, grad: int) -> Task[None]:
        old, scale = self._own[rank, layer, step], [self._scales[step][rank]] if self.clip else []
        if self.choice.random() < 0.3:
            weight, state = yield from self._updated_on_host(rank, layer, [grad, *old, *scale])
        else:
            weight, state = self.do(
                rank, "update", grad, *old, *scale, makes=[self.piece(rank, number) for number in old], layer=layer
            )
        for number in (grad, *old):
            self.drop(rank, number)
        self._own[rank, layer, step + 1] = self.keep(rank, weight), self.keep(rank, state)
        if step + 1 == self.steps:
            self.do(rank, "set_final_weight", weight, layer=layer)

    def _updated_on_host(self, rank: int, layer: int, numbers: Sequence[int]) -> Task[list[int]]:
        """An update of what goes to the host for it, and comes back; calls may follow each other without await."""
        there, back = list[int](), list[int]()
        for number in numbers:
            piece = self.piece(rank, number)._replace(tier="host")
            there += (
                yield from self.passed_on({rank: self.call(rank, "offload", number, makes=[piece], tier="host")})
            )[rank]
        pieces = [self.piece(rank, number) for number in there[1:3]]
        call = self.call(rank, "tier_update", *there, makes=pieces, layer=layer, tier="host")
        for number in (yield from self.passed_on({rank: call}))[rank]:
            back.append((yield from self.copied(rank, "fetch", number)))
        return back


def _share(n: int, i: int, piece: Piece) -> Piece:
    """Share i of n of a piece."""
    return piece._replace(shards=(piece.shards[0] * n + i % n,), total=piece.total * n)
