"""Writes docs/xla.md, plans of imported functions beside what XLA's partitioner moves for them: `make docs`.

Needs jax; without it the page stays as it is.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "xla.md"

HEAD = """\
# From JAX, and compared with XLA

`from_jax` makes a graph of a function that is written in JAX. It needs `pip install -e '.[jax]'` in the clone.

```python
import jax
import jax.numpy as jnp
from lib.layout import from_jax, mesh, plan, propagate


def network(p, x):
    return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


shapes = {"w1": (64, 256), "b1": (256,), "w2": (256, 64), "b2": (64,)}
graph = from_jax(network, shapes, (64, 64), mesh=mesh(data=2, model=4))
print(list(graph.sources), list(graph.operators))
graph.shard("matmul1", ((2, 1), (1, 4)))
print(propagate(graph).bytes, plan(graph, memory_cap=60_000).bytes)
```

```text
['p.b1', 'p.b2', 'p.w1', 'p.w2', 'x'] ['matmul1', 'add1', 'relu1', 'matmul2', 'result']
98304 163840
```

What is in a dictionary, list or any other pytree is a parameter, called by its path; other arguments are inputs, unless
`parameters=` names them. Give an argument as its shape, or as any object with a shape and a dtype. `graph.values(p, x)`
returns the values for `graph.run` and `on_engine`; they include the constants of the function, which are inputs too.
`graph.results` names the results. `training(graph)` works as for other graphs, and the gradients of JAX can be imported
as well: `from_jax(jax.grad(loss), ...)`.

A softmax, a mean, silu and relu become one operator each. The axis of such a softmax is not split; with `fused=False`
its maximum, sum and quotient are operators, and plans may split it, as for a split vocabulary. Equal computations are
done once, and computations that no result needs are left out. `jax.named_scope` prefixes names. The body of a `scan` is
planned once: the layouts of its first step hold for all of its steps (`graph.repeats`), and what is configured or
pinned in one step holds for all. A stack of 24 layers has hardly more variables than one of 3. Rows are taken,
and added up, by number along one dimension of a table, as in `table[:, rows]`, `take_along_axis` and their gradients,
mapped over any axis. Constants of more than 65,536 elements, such as a causal mask, are computed by operators. Sharding
constraints are ignored, and types are not converted: a graph has one size of elements, 2 bytes for bfloat16, and if
floats differ, all count as the largest. Row numbers of a gather are used as they are.

Every other primitive, such as `sort`, `argmax`, `cumsum`, `random_bits` or `while`, becomes an opaque operator, which
JAX computes. Its dimensions are split where its batching rule proves that the primitive works on parts; otherwise every
device has all of its inputs. Its flops are not counted, it has no gradient in `training`, and `code_of` cannot write
it. Complex numbers and collectives are refused, with the line that has them.

## Your own program

`puzzles layout` compares a function with what XLA makes of it, on devices that this machine simulates:

    puzzles layout model.py:step --mesh data=2,model=4 --in '*.w1=,model' --in 'x=data' -o plan.html

The file defines the function and `args`, its arguments: shapes or `jax.ShapeDtypeStruct`s, in any pytree. `--in` and
`--out` give the mesh axes of each dimension, separated by commas, for arguments and results by name: `,model` splits
columns over `model`, `data+model` splits rows over both axes. An argument that no `--in` names has the sharding of its
struct, or is full on every device. A result that no `--out` names is free. `--memory 40G` is a cap on what a device
holds at any time. A plan counts the same number of bytes for each value, as above; XLA's figures are of the types
that it sends. Of dimensions that a reshape merges or divides, a plan splits the first only, so a plan is
"proven" among such plans ([layouts](layout.md#a-graph)).

The command shows what XLA moves, read from the program that it compiles; what propagation moves; the best plan; and the
best plan that computes nothing twice. Then follow the lines of the function that pay, and one or two
`with_sharding_constraint`s that bring XLA closest to the best plan, found by compiling with each of the dozen largest
candidates. `--code jax` prints the plan as a program instead, `--code json` as data.

## What XLA's partitioner moves

The functions below were imported and planned on a mesh of 2x4 devices. The plan's layouts were then given to `jax.jit`
and compiled for 8 devices, and the collectives in the compiled program were counted, with the same formulas as here.
In the third column, every operator's inputs and output have the layouts of the plan (`with_sharding_constraint`). In
the last two, only the function's arguments and results have them, and XLA chooses all others: with Shardy, which is its
default partitioner, and with GSPMD. The compiled programs compute what the graphs compute.
"""

TAIL = """\

- Where the plan has reduce-scatters, XLA's compiler for CPUs keeps the partitioner's all-reduce and slice, at twice the
  bytes. For GPUs a later pass makes a reduce-scatter of the two
  ([openxla/xla#31030](https://github.com/openxla/xla/pull/31030)).
- Between two layouts, XLA moves in named collectives along mesh axes. A move here goes straight to the bound: each
  device receives only what it lacks. `[data, -]` to `[model, -]` is a slice and a permute in both, but the permute here
  leaves four devices what they hold, and XLA's leaves it to two.
- Left to choose, XLA decides tensor by tensor without a limit on memory and without a search. With the exact plan's
  layouts at both ends only, it moves more than twice as much for the MLP, and more than four times for its gradients.
- Neither the rule nor XLA adds the two products before the sum over devices, which takes one all-reduce instead of two.
  The exact planner does so with the gradients of queries, keys and values: 98,304 bytes, a third of what XLA moves.
- With the ends given, both partitioners move more than twice as much for the MLP that is stored by rows and for the
  blocks of GPT and Llama, and five times as much for the attention. For GPT's block,
  GSPMD moves half as much again as Shardy; with the ends of the MLP's exact plan, 15 % less.
- Grouped queries with rotary embedding move at least 31,232 bytes under a cap of 140,000 bytes on each device, as the
  planner proves.
- 250 columns do not divide by 4. Both pad them to 252 and send the padding. JAX has no uneven arguments, so XLA gets
  such weights whole on every device; left to choose, it leaves them there, and nothing moves.
- The other rows agree. With the same layouts, XLA never moves less.

The formulas count what devices send in a ring; they say nothing about how fast XLA's collectives are.
"""


def row(measured: dict[str, Any]) -> list[str]:
    """A row of the table: what the plan moves, and XLA in three ways; flops of the plan and of Shardy; seconds."""
    cells = [measured["name"], _cell(measured["sent"], measured["steps"])]
    for column in ("same layouts", "Shardy's choice", "GSPMD's choice"):
        sent = [sum(each) for each in zip(*(sent for _, sent in measured[column]))]
        cells.append(_cell(sent, [name for name, _ in measured[column]]))
    plan, _, shardy, _ = measured["flops"]
    return [*cells, f"{plan:.2f}, {shardy:.2f}", f"{measured['seconds']:.1f}"]


def untimed(text: str) -> str:
    """The page without what differs from run to run: the seconds, which are the last column."""
    return re.sub(r"\| [\d.]+ \|$", "|", text, flags=re.MULTILINE)


def _cell(sent: list[int], names: list[str]) -> str:
    counted = sorted(Counter(names).items())
    words = ", ".join(f"{n} {name}" if n > 1 else name for name, n in counted)
    return f"{sum(sent):,} ({max(sent, default=0):,}): {words or 'none'}"


def page(measured: dict[str, Any]) -> str:
    """The page, given what both move."""
    rows = [f"| {' | '.join(row(each))} |" for each in measured["rows"]]
    said = (
        "Bytes that all devices send, in brackets the most by one, and the collectives. Flops of all devices, of the\n"
        "plan and of Shardy, as a multiple of one device's that computes everything. Seconds of import and plan, on a\n"
        f"loaded processor with two cores; with jax {measured['jax']}:"
    )
    columns = "program | plan | XLA, the same layouts | Shardy's choice | GSPMD's choice | flops | seconds"
    head = f"\n{said}\n\n| {columns} |"
    return "\n".join([HEAD.rstrip(), head, "|---|---|---|---|---|---|---|", *rows, TAIL.rstrip()]) + "\n"


def main() -> None:
    if find_spec("jax") is None:
        print("docs/xla.md stays as it is: jax is not installed (pip install -e '.[jax]')", file=sys.stderr)
        return
    from tests.oracles.xla_partitioner import measured

    FILE.write_text(page(measured()), encoding="utf-8")


if __name__ == "__main__":
    main()
