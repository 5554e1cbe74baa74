"""The choices of a graph as numbered variables, with tables of what they cost and hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from lib.layout.layouts.tensor_layout import Placement, TensorLayout, placement
from lib.layout.program.distributed import DistributedOperator

from .choices import Choices
from .elimination import FORBIDDEN, Table, largest_table
from .objective import BYTES, Objective
from .plan import GraphPlan

MAX_VALUES = 1000
"""Maximum number of sets. Beyond it, sets of fewer copies are considered."""


class PlacementProblem:
    """Costs and memory of each variable's values, and costs of pairs of values: in bytes, or with links in time.

    There is a variable for the layout in which each tensor is stored and one for how each operator computes. They are
    the same where one follows from the other. At most so many `copies` of a tensor are shared in each phase.
    """

    def __init__(self, choices: Choices, copies: int | None = None, objective: Objective = BYTES) -> None:
        self.choices, self.copies, self.objective = choices, copies, objective
        self.graph, self.step = choices.graph, choices.step
        self.costs: list[Table] = []
        self.memory: list[Table] = []
        self.pairs: dict[tuple[int, ...], Table] = {}
        self._pending: list[tuple[tuple[int, ...], Callable[[], Table]]] = []
        self._tables: dict[tuple[tuple[int, ...], bytes], Table] = {}
        self.lives: dict[str, tuple[int, list[TensorLayout]]] = {}
        """By tensor: its variable, and the layout that each value means."""
        self.shares: dict[tuple[str, int], tuple[int, list[tuple[TensorLayout, ...]]]] = {}
        """By tensor and phase: a variable, and the moved copies that readers share under each value."""
        self.not_shared: dict[str, None] = {}
        """Tensors of which copies may be shared in ways that are no choice: sets of many copies, and copies from which
        others move."""
        self.computes: dict[str, tuple[int, list[tuple[TensorLayout, ...]]]] = {}
        """By operator: a variable, and the inputs that its values need."""
        self._own: dict[str, tuple[tuple[int, ...], Callable[[], Table]]] = {}
        self._shared: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        self._read: set[tuple[str, int, int, int]] = set()
        self._between: dict[tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]], Table] = {}
        for name, layouts in choices.storage_layouts.items():
            self._store(name, layouts)
        for name in self.graph.operators:
            self._number(name)
        for name in self.graph.operators:
            self._add_edges(name)

    def plan(self, chosen: Sequence[int]) -> GraphPlan:
        """The plan of one value for each variable."""
        placed = {name: layouts[chosen[v]] for name, (v, layouts) in self.lives.items()}
        operators = {}
        for name, (v, ways) in self.computes.items():
            fitting = (
                c for c in self.choices.operators[name] if (c.inputs, c.output) == (ways[chosen[v]], placed[name])
            )
            operators[name] = self.choices.way(name, min(fitting, key=self.own))
        layouts = {name: placed[name] for name in self.choices.storage_layouts}
        return GraphPlan(
            self.graph,
            operators,
            layouts,
            tuple(self.not_shared),
            links=self.objective.links,
            rate=self.objective.flops,
        )

    def _number(self, name: str) -> None:
        """Variables for an operator: one, or if several choices compute in the same way, one more for its output."""
        choices, first = self.choices.operators[name], self.graph.repeats.get(name)
        if first is not None:
            self.computes[name], self.lives[name] = self.computes[first], self.lives[first]
            self._own_costs(name, *self._own[first])
            self._hold(name)
            self._share(name)
        elif name in self.step.replaces:
            v, layouts = self.lives[self.step.replaces[name]]
            by_output = {choice.output: choice for choice in choices}
            self._follow(name, v, [by_output.get(layout) for layout in layouts])
        else:
            ways = list(dict.fromkeys(choice.inputs for choice in choices))
            outputs = [choice.output for choice in choices]
            if len(ways) == len(choices) and self._as_many(name, outputs):
                v = self._variable(self._held(name, outputs))
                self._own_costs(name, (v,), lambda: np.array(list(map(self.own, choices)), dtype=np.float64))
                self.computes[name], self.lives[name] = (v, ways), (v, outputs)
                self._share(name)
                return
            row = {way: i for i, way in enumerate(ways)}
            v = self._variable([0] * len(ways))
            self.computes[name] = v, ways
            self._add_output(name, v, [(row[choice.inputs], choice) for choice in choices])

    def _follow(self, name: str, v: int, ways: Sequence[DistributedOperator | None]) -> None:
        """An operator whose way to compute follows from the value of another one's variable, if it is possible."""
        if None in ways:
            self._pair((v,), lambda: np.array([FORBIDDEN if each is None else 0.0 for each in ways]))
        each = [way or self.choices.operators[name][0] for way in ways]
        self.computes[name] = v, [way.inputs for way in each]
        self.lives[name] = v, [way.output for way in each]
        self._pair((v,), lambda: np.array(list(map(self.own, each)), dtype=np.float64))
        self._hold(name)
        self._share(name)

    def _hold(self, name: str) -> None:
        """Memory of an operator's output that has the variable of another tensor."""
        v, layouts = self.lives[name]
        held = np.array(self._held(name, layouts), dtype=np.float64) * self.graph.itemsize
        self.memory[v] = self._one(self.memory[v] + held)

    def _own_costs(self, name: str, names: tuple[int, ...], table: Callable[[], Table]) -> None:
        self._own[name] = names, table
        self._pair(names, table)

    def _add_output(self, name: str, u: int, choices: Sequence[tuple[int, DistributedOperator]]) -> None:
        """A variable for where an operator's output lives; each choice belongs to a value of the operator's own."""
        self._store(name, list(dict.fromkeys(choice.output for _, choice in choices)))
        v, outputs = self.lives[name]
        rows = len(self.costs[u])

        def table() -> Table:
            made = np.full((rows, len(outputs)), FORBIDDEN)
            column = {output: i for i, output in enumerate(outputs)}
            for row, choice in choices:
                place = row, column[choice.output]
                made[place] = min(made[place], self.own(choice))
            return made

        self._own_costs(name, (u, v), table)

    def _store(self, name: str, layouts: list[TensorLayout]) -> None:
        """A variable for where a tensor lives, and for each phase in which several operators read it, one more for the
        moved copies that they share."""
        v = self._variable(self._held(name, layouts))
        self.lives[name] = v, layouts
        self._share(name)

    def _as_many(self, name: str, outputs: Sequence[TensorLayout]) -> bool:
        """True if a variable of its own for the output would not be smaller or useful."""
        return len(set(outputs)) == len(outputs) or len(self.choices.consumers[name]) < 2

    def _share(self, name: str) -> None:
        """For each phase in which several operators read a tensor, a variable for the moved copies that they share."""
        for phase in range(3):
            readers = self._readers(name, phase)
            wanted = list(readers.values())
            found, all_of_them = shared_copies(wanted, self.copies) if len(wanted) > 1 else ([], True)
            if not all_of_them or (len(wanted) > 1 and len({key for reader in wanted for key in reader}) > 1):
                self.not_shared[name] = None
            if len(found) > 1:
                self._add_shares(name, phase, found, tuple(readers))

    def _add_shares(
        self, name: str, phase: int, copies: list[tuple[TensorLayout, ...]], readers: tuple[tuple[str, int], ...]
    ) -> None:
        """A variable for shared copies: those that each of its values means; one for all steps of a loop."""
        v, layouts = self.lives[name]
        if (v, readers) not in self._shared:
            self._shared[v, readers] = self._variable([0] * len(copies))
        u = self._shared[v, readers]
        self.shares[name, phase] = u, copies
        self._pair((v, u), partial(self._moved_at_once, tuple(layouts), tuple(copies)))

    def _readers(self, name: str, phase: int) -> dict[tuple[str, int], dict[Placement, TensorLayout]]:
        """The inputs of operators of this phase that a tensor is, with the layouts in which they may need it. Operators
        of all steps of a loop need it in the same one."""
        return {
            (self.graph.repeats.get(op.name, op.name), place): {
                placement(c.inputs[place]): c.inputs[place] for c in self.choices.operators[op.name]
            }
            for op, place in self.choices.consumers[name]
            if self.graph.phase(op.name) == phase
        }

    def _held(self, name: str, layouts: Sequence[TensorLayout]) -> list[int]:
        """Elements that count as memory."""
        kept = name in self.choices.storage_layouts or self.graph.keeps(name)
        return [layout.elements * kept for layout in layouts]

    def own(self, choice: DistributedOperator) -> int:
        """What an operator costs itself."""
        return self.objective.of_operator(choice, self.graph.itemsize)

    def _variable(self, held: Sequence[int]) -> int:
        """A new variable, with the elements that each value holds."""
        self.costs.append(self._one(np.zeros(len(held))))
        self.memory.append(self._one(np.array(held, dtype=np.float64) * self.graph.itemsize))
        return len(self.costs) - 1

    def _one(self, table: Table) -> Table:
        """The same object for equal tables, so that an elimination recognizes identical layers."""
        return self._tables.setdefault((table.shape, table.tobytes()), table)

    def _pair(self, names: tuple[int, ...], table: Callable[[], Table]) -> None:
        """Costs of combined values, to be computed when the problem turns out to be small enough."""
        self._pending.append((names, table))

    def filled(self) -> PlacementProblem:
        """The same problem, with all tables of costs."""
        for names, table in self._pending:
            self._charge(names, table())
        self._pending.clear()
        return self

    def forbids(self, chosen: Sequence[int]) -> bool:
        """True if these values do not go together."""
        alone = any(table[value] >= FORBIDDEN for table, value in zip(self.costs, chosen))
        return alone or any(table[tuple(chosen[v] for v in names)] >= FORBIDDEN for names, table in self.pairs.items())

    def _charge(self, names: tuple[int, ...], table: Table) -> None:
        """Adds costs of combined values; where a variable occurs twice, of its equal values."""
        for i, v in enumerate(names):
            if v in names[:i]:
                first = names.index(v)
                table = np.moveaxis(np.diagonal(table, axis1=first, axis2=i), -1, first)
                return self._charge(names[:i] + names[i + 1 :], table)
        if len(names) == 1:
            self.costs[names[0]] = self._one(self.costs[names[0]] + table)
        else:
            table = np.ascontiguousarray(table)
            self.pairs[names] = self._one(self.pairs[names] + table if names in self.pairs else table)
        return None

    @property
    def largest_table(self) -> int:
        """The number of entries of the largest table that an elimination of the variables needs."""
        return largest_table(list(map(len, self.costs)), [names for names, _ in self._pending])

    def _add_edges(self, name: str) -> None:
        """What it costs to bring each input to the layout that the operator needs, where no shared copy has it."""
        v, ways = self.computes[name]
        for place, tensor in enumerate(self.graph.operators[name].inputs):
            reading = tensor, self.graph.phase(name), v, place
            if reading in self._read:
                continue  # moved for the first step of a loop
            self._read.add(reading)
            u, layouts = self.lives[tensor]
            wanted = tuple(way[place] for way in ways)
            if (tensor, self.graph.phase(name)) in self.shares:
                w, sets = self.shares[tensor, self.graph.phase(name)]
                self._pair((u, w, v), partial(self._moved_apart, tuple(layouts), tuple(sets), wanted))
            else:
                self._pair((u, v), partial(self._moved, tuple(layouts), wanted))

    def _moved_at_once(self, layouts: tuple[TensorLayout, ...], sets: tuple[tuple[TensorLayout, ...], ...]) -> Table:
        """Bytes moved from each layout to the copies of each set."""
        copies = tuple(dict.fromkeys(copy for each in sets for copy in each))
        contained = np.array([[copy in each for each in sets] for copy in copies], dtype=np.float64)
        return self._moved(layouts, copies) @ contained

    def _moved_apart(
        self,
        layouts: tuple[TensorLayout, ...],
        sets: tuple[tuple[TensorLayout, ...], ...],
        wanted: tuple[TensorLayout, ...],
    ) -> Table:
        """Bytes moved from each layout to each wanted one, unless a set has that: given x sets x wanted."""
        places = [placement(layout) for layout in wanted]
        held = [set(map(placement, copies)) for copies in sets]
        missing = np.array([[place not in each for place in places] for each in held], dtype=np.float64)
        return self._moved(layouts, wanted)[:, None, :] * missing

    def _moved(self, given: tuple[TensorLayout, ...], wanted: tuple[TensorLayout, ...]) -> Table:
        """The cost of moving from each given layout to each wanted one: given x wanted."""
        if (given, wanted) not in self._between:
            rows, columns = list(dict.fromkeys(given)), list(dict.fromkeys(wanted))
            at_row, at_column = {a: i for i, a in enumerate(rows)}, {b: i for i, b in enumerate(columns)}
            least = self.objective.between(rows, columns, self.graph.itemsize)
            table = least[np.ix_([at_row[a] for a in given], [at_column[b] for b in wanted])]
            self._between[given, wanted] = table
        return self._between[given, wanted]


def shared_copies(
    readers: Sequence[Mapping[Placement, TensorLayout]], most: int | None = None
) -> tuple[list[tuple[TensorLayout, ...]], bool]:
    """Each set of copies, of at most `most`, that two or more readers may share; whether these are all sets.

    `readers` has, for each input that the tensor is, the layouts in which it may be needed. A copy that only one reader
    takes costs the same as its own move, so at most half as many copies as there are readers are considered.
    """
    times = Counter(key for reader in readers for key in reader)
    wanted = [
        layout for key, layout in {k: x for reader in readers for k, x in reader.items()}.items() if times[key] > 1
    ]
    found: list[tuple[TensorLayout, ...]] = []
    for number in range(len(readers) // 2 + 1):
        more = list(combinations(wanted, number))
        if len(found) + len(more) > MAX_VALUES or (most is not None and number > most and more):
            return found, False
        found += more
    return found, True
