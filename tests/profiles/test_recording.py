"""`puzzles run --on torch --profile` writes what `puzzles profile` reads, and runs the orders that it proposes."""

from pathlib import Path

import pytest

from lib import Model, Setting, run
from lib.engine.replay.pipelining import missing, names_of
from lib.pipelines import dualpipev, one_f_one_b
from lib.pipelines.torch_csv import Pipeline, read_csv, write_table
from lib.profiles import Shares, Study, sources_of, study
from puzzles.catalog.schedule import PUZZLES
from tests.support.commands import puzzles
from tests.support.refusals import Refused
from tests.support.schedules.random_pipelines import TEXTBOOKS, played, textbook
from tests.support.solved import played as solved
from tests.support.solved import reference_of
from tests.test_imports import ROOT

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")

with_torch = pytest.mark.skipif(bool(missing()), reason=missing() or "PyTorch is there")


def invoke(*arguments: str, code: int = 0) -> str:
    done = puzzles(*arguments)
    assert done.exit_code == code, done.output
    return " ".join(done.output.replace("│", " ").split())


async def layer_by_layer(model: Model) -> None:
    """One rank, whose microbatches go through a layer together."""
    weights, states, inputs, grads, _ = model.storage()
    batches, layers = range(model.BATCHES), range(model.LAYERS)
    for batch in batches:
        inputs[0, batch] = model.get_activation([batch])
    for layer in layers:
        weights[layer], states[layer] = model.load_weights(layer)
        for batch in batches:
            inputs[layer + 1, batch] = model.forward(layer, inputs[layer, batch], weights[layer])
    for batch in batches:
        grads[batch] = model.loss(inputs[model.LAYERS, batch])
    for layer in reversed(layers):
        total = None
        for batch in batches:
            new, grads[batch] = model.backward(layer, inputs[layer, batch], grads[batch], weights[layer])
            total = new if total is None else total + new
        model.set_final_weight(layer, model.update(layer, total, weights[layer], states[layer])[0])


@with_torch
@pytest.mark.parametrize("how", [["--small"], pytest.param(["--through", "pipelining"], marks=pytest.mark.slow)])
def test_an_order_is_recorded_improved_and_run(how: list[str]) -> None:
    Path("mine.csv").write_text(write_table(one_f_one_b(4, 8)))
    told = invoke("run", "mine.csv", "--on", "torch", "--profile", "before", *how)
    assert "next: puzzles profile" in told
    found = study(sources_of([Path("before")]))
    assert isinstance(found, Study)
    assert found.chosen.step.table == one_f_one_b(4, 8)
    assert found.name.text == "1F1B"
    better = found.prospect.better
    Path("better.csv").write_text(write_table(better.table if better else one_f_one_b(4, 6)))
    invoke("run", "better.csv", "--on", "torch", "--profile", "after", *how)
    again = study(sources_of([Path("after")]))
    assert isinstance(again, Study)
    assert again.chosen.step.table == read_csv(Path("better.csv").read_text())


@with_torch
@pytest.mark.parametrize(("slug", "ranks"), [("fsdp", 4), pytest.param("three_d", 8, marks=pytest.mark.slow)])
def test_a_run_without_cells_shows_its_collectives(slug: str, ranks: int) -> None:
    """Messages beside collectives, as tensor parallelism in a pipeline has them, do not show which cells there are."""
    path = str(ROOT / "solutions" / f"{slug}.py")
    invoke("run", path, slug, "--on", "torch", "--small", "--profile", "traces")
    found = study(sources_of([Path("traces")]))
    assert isinstance(found, Shares)
    assert [one.rank for one in found.ranks] == [*range(ranks)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [*TEXTBOOKS, "DualPipeV"])
def test_the_cells_that_are_named_are_those_of_the_order(name: str) -> None:
    table = dualpipev(2, 6) if name == "DualPipeV" else next(filter(None, (textbook(name, 3, m) for m in (4, 3, 6))))
    trace = played(table, depth=2)
    names = names_of(trace)
    order = Pipeline.of(trace)
    for rank, row in enumerate(order.table.rows):
        named = list(dict.fromkeys(names[rank][at] for at in sorted(names[rank])))
        assert [name.removeprefix("PP:") for name in named] == write_table(order.table).splitlines()[rank].split(",")
        assert len(named) == len(row)


def test_a_run_with_neither_cells_nor_collectives_is_refused() -> None:
    with Refused("nothing to profile"):
        names_of(solved(PUZZLES["checkpoint"], reference_of("checkpoint")).trace)


def test_cells_whose_operations_alternate_are_refused() -> None:
    trace = run(layer_by_layer, 2, 2, 1, setting=Setting("parts")).trace
    with Refused("cells alternate", rank=0):
        names_of(trace)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--profile", "traces"], "--device, --through and --profile are for --on torch"),
        (["--on", "torch", "--profile", "mine.csv/traces"], "cannot write to mine.csv/traces"),
        (["zb_h1"], "a .csv states its own size and name; of these options only --costs applies to it"),
        (["--steps", "2"], "of these options only --costs applies to it"),
    ],
)
def test_options_that_do_not_fit_a_csv_are_refused(words: list[str], facts: str) -> None:
    Path("mine.csv").write_text("0F0,0B0\n1F0,1B0\n")
    assert facts in invoke("run", "mine.csv", *words, code=2)


def test_a_csv_also_runs_on_numpy() -> None:
    Path("mine.csv").write_text(write_table(one_f_one_b(2, 3)))
    assert "The updated weights equal" in invoke("run", "mine.csv", "--small")
