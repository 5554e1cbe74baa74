"""Communication beside training: of any group, in buckets, passed on to a further call, from any rank, to the host."""

from collections.abc import Sequence
from typing import Any

from .prices import Piece
from .training import Training
from .writer import Task


class Exchanges(Training):
    """Training, with further exchanges in between."""

    def exchange(self) -> None:
        kinds = [self._zeros, self._rooted, self._gather_loaded, self._messages, self._messages, self._park]
        if self.kind == "experts":
            kinds.append(self._experts)
        if self.kind == "dense" and self.prices.kinds and not self.frozen:
            kinds += [self._vocabulary] * 2
        for _ in range(self.choice.choice((1, 2, 3, 4, 6))):
            self.late(self.choice.choice(kinds)())
        if self.first_tag and self.ranks > 1:
            self._to_any()

    def _group(self, most: int = 8) -> list[int]:
        """Any ranks, or all."""
        size = min(most, self.choice.choice((self.choice.randint(1, self.ranks), self.ranks)))
        return sorted(self.choice.sample(range(self.ranks), size))

    def _zeros(self) -> Task[None]:
        """A reduction of zeros, in a bucket or not, and a gather after a scatter."""
        group = self._group()
        layers = self.choice.sample(
            range(self.layers), self.choice.randint(1, self.layers) if self.prices.overlap else 1
        )
        whose = tuple(layers) if len(layers) > 1 else ()
        uses = {}
        for rank in group:
            uses[rank] = [self.do(rank, "fake_grad", makes=[Piece("wgrad")], layer=layer)[0] for layer in layers]
        if self.choice.random() < 0.5:
            calls = self.together("allreduce", group, uses, lambda i, piece: piece, layer=layers[0], whose=whose)
        else:
            n = len(group)
            calls = self.together(
                "scatterreduce",
                group,
                uses,
                lambda i, piece: piece._replace(shards=(i,), total=n),
                layer=layers[0],
                whose=whose,
            )
            if self.choice.random() < 0.5:
                uses = yield from self.passed_on(calls)
                calls = self.together(
                    "allgather",
                    group,
                    uses,
                    lambda i, piece: piece._replace(shards=(0,), total=1),
                    layer=layers[0],
                    whose=whose,
                )
        yield from self._used(calls)

    def _rooted(self) -> Task[None]:
        """A sum of zeros on one rank, or a value of any size on all; one may follow the other."""
        group, layer = self._group(), self.choice.randrange(self.layers)
        to, source = self.choice.choice(group), self.choice.choice(group)
        number = self._input(source)
        piece, of = self.piece(source, number), 0
        if self.choice.random() < 0.5:
            calls = {}
            for rank in self.choice.sample(group, len(group)):
                (zero,) = self.do(rank, "fake_grad", makes=[Piece("wgrad")], layer=layer)
                makes = [self.piece(rank, zero)] if rank == to else []
                calls[rank] = self.call(rank, "reduce", zero, makes=makes, layer=layer, group=tuple(group), peer=to)
            made = yield from self.passed_on(calls)
            source, (number,), of = to, made[to], layer
            piece = self.piece(source, number)
        calls = {}
        for rank in self.choice.sample(group, len(group)):
            uses = [number] if rank == source else []
            calls[rank] = self.call(rank, "broadcast", *uses, makes=[piece], layer=of, group=tuple(group), peer=source)
        yield from self._used(calls)

    def _gather_loaded(self) -> Task[None]:
        """A gather of shards that are loaded for it, perhaps from the host."""
        group, layer, uses = self._group(), self.choice.randrange(self.layers), {}
        tier = self.choice.choice(("", "host"))
        for i, rank in enumerate(group):
            pieces = [Piece(kind, 1, (i,), len(group), tier) for kind in ("weight", "state")]
            uses[rank] = self.do(rank, "load_weights", makes=pieces, layer=layer, shard=(i, len(group)), tier=tier)[:1]
        if tier:
            calls = {}
            for rank, (number,) in uses.items():
                piece = self.piece(rank, number)._replace(tier="")
                calls[rank] = self.call(rank, "fetch", number, makes=[piece], tier="host")
            uses = yield from self.passed_on(calls)
        calls = self.together("allgather", group, uses, lambda i, _: Piece("weight", layer=layer), layer=layer)
        yield from self._used(calls)

    def _messages(self) -> Task[None]:
        """Messages in a row from one rank to another, behind reductions that may hold up their lane."""
        exchanges = [self._zeros() for _ in range(self.choice.randrange(3))]
        if self.ranks > 1:
            source, to = self.choice.sample(range(self.ranks), 2)
            tag = self.choice.choice((None, self.first_tag, 2))
            exchanges += [self._message(source, to, tag) for _ in range(self.choice.randint(1, 4))]
        for exchange in exchanges:
            next(exchange, None)
            self.tasks.append(exchange)
        yield

    def _message(self, source: int, to: int, tag: int | None) -> Task[None]:
        """A message of no value or of several."""
        values = [self._input(source) for _ in range(self.choice.choice((0, 1, 1, 3)))]
        for number in (yield from self.sent(source, to, values, tag)):
            self.keep(to, number)
            yield
            self.drop(to, number)

    def _input(self, rank: int) -> int:
        """A value of any size."""
        batches = tuple(range(self.choice.randint(1, self.batches)))
        (made,) = self.do(rank, "get_activation", makes=[Piece("act", len(batches))], batches=batches)
        return self.keep(rank, made)

    def _to_any(self) -> None:
        """One message from each of some ranks, for receives that name none."""
        to, *sources = self.choice.sample(range(self.ranks), self.choice.randint(2, self.ranks))

        def send(source: int) -> Task[None]:
            at, _ = self.call(source, "pass_to", self._input(source), peer=to)
            yield from self.joined(source, at)

        def receive() -> Task[None]:
            for _ in sources:
                while not any(self.simulation.unread(source, to, 0) for source in sources):
                    yield
                self.do(to, "receive")
                self.keep(to, len(self.simulation.pieces[to]) - 1)

        for source in sources:
            self.late(send(source))
        self.late(receive())

    def _park(self) -> Task[None]:
        """A copy to the host, perhaps on to the disk, and back."""
        rank = self.choice.randrange(self.ranks)
        number = self._input(rank)
        piece = self.piece(rank, number)
        call = self.call(rank, "offload", number, makes=[piece._replace(tier="host")], tier="host")
        parked = yield from self.passed_on({rank: call})
        self.drop(rank, number)
        tier = self.choice.choice(("host", "disk"))
        if tier == "disk":
            call = self.call(rank, "move", *parked[rank], makes=[piece._replace(tier=tier)], tier=tier)
            parked = yield from self.passed_on({rank: call})
        call = self.call(rank, "fetch", *parked[rank], makes=[piece], tier=tier)
        yield from self._used({rank: call})

    def _experts(self) -> Task[None]:
        """Tokens go to their experts, who may compute, and come back to any rank."""
        group = self._group(self.batches)
        n, layer, uses = len(group), 0, {}
        whose = self._dealt(group)
        for rank in group:
            batches = whose[rank]
            uses[rank] = self.do(rank, "get_activation", makes=[Piece("act", len(batches))], batches=batches)
        calls = self.together("dispatch", group, uses, lambda i, _: Piece("act", self.batches, (i,), n))
        if self.choice.random() < 0.5 and self.ranks % n == 0:
            uses, layer = (yield from self.results(calls)), 1
            for i, rank in enumerate(group):
                pieces = [Piece(kind, 1, (i,), n) for kind in ("weight", "state")]
                weight, _ = self.do(rank, "load_weights", makes=pieces, shard=(i, n))
                out = Piece("act", self.batches, (i,), n)
                uses[rank] = self.do(
                    rank, "forward", *uses[rank], weight, makes=[out], batches=tuple(range(self.batches))
                )
        else:
            uses = yield from self.passed_on(calls)
        asked = self._dealt(group)
        calls = {
            rank: self.call(
                rank,
                "collect",
                *uses[rank],
                makes=[Piece("act", len(asked[rank]))],
                layer=layer,
                group=tuple(group),
                batches=asked[rank],
            )
            for rank in group
        }
        yield from self._used(calls)

    def _vocabulary(self) -> Task[None]:
        """Some microbatches through all layers on every rank of a group, each with its own shard of the head."""
        group, head = self._group(), self.layers - 1
        batches = tuple(sorted(self.choice.sample(range(self.batches), self.choice.randint(1, self.batches))))
        more: dict[str, Any] = {"batches": batches}
        inputs, known, parts = dict[int, int](), dict[int, int](), dict[int, list[int]]()
        for i, rank in enumerate(group):
            (inp,) = self.do(rank, "get_activation", makes=[Piece("act", len(batches))], **more)
            for layer in range(self.layers):
                at, total = (i, len(group)) if layer == head else (0, 1)
                inputs[rank] = self.keep(rank, inp)
                pieces = [Piece(kind, 1, (at,), total) for kind in ("weight", "state")]
                weight, _ = self.do(rank, "load_weights", makes=pieces, layer=layer, shard=(at, total))
                out = Piece("act", len(batches), (at,), total)
                (inp,) = self.do(rank, "forward", inp, weight, makes=[out], layer=layer, **more)
                yield
            grad = Piece("grad", len(batches), (i,), len(group))
            (known[rank],) = self.do(rank, "loss", inp, makes=[grad], layer=head, **more)
            uses, part = (inputs[rank], known[rank], weight), Piece("grad", len(batches))
            parts[rank] = self.do(rank, "backward_input", *uses, makes=[part], layer=head, **more)
        totals = parts
        if len(group) > 1:
            calls = self.together("allreduce", group, parts, lambda i, piece: piece, layer=head - 1)
            totals = yield from self.results(calls)
        for i, rank in enumerate(group):
            total_grad = totals[rank] if len(group) > 1 else []
            own = Piece("wgrad", 1, (i,), len(group))
            (made,) = self.do(
                rank, "backward_weight", inputs[rank], known[rank], *total_grad, makes=[own], layer=head, **more
            )
            self.keep(rank, made)
            yield

    def _dealt(self, group: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """All batches, each with one of a group, which has at least one."""
        batches = self.choice.sample(range(self.batches), self.batches)
        return {rank: tuple(sorted(batches[i :: len(group)])) for i, rank in enumerate(group)}

    def _used(self, calls: dict[int, tuple[int, list[int]]]) -> Task[None]:
        """Awaits calls, and keeps what they have made for some time."""
        for rank, made in (yield from self.results(calls)).items():
            for number in made:
                self.keep(rank, number)
                yield
                self.drop(rank, number)
