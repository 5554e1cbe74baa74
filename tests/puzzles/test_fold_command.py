"""`puzzles run --fold` and `puzzles draw --fold`: one replica played for all, and what that refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib import Setting, referee, run
from tests.puzzles.test_free_play import puzzles, shown

SHARDED = '''
async def sharded(model):
    """Weights in shards along dp, a microbatch for each replica."""
    place, of = model.index("dp"), len(model.axis("dp"))
    inputs = [model.get_activation([place])]
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, place, of)
    for layer in range(model.LAYERS):
        whole = await model.allgather(model.weights[layer], layer, group="dp")
        inputs.append(model.forward(layer, inputs[layer], whole))
    grad = model.loss(inputs.pop())
    for layer in reversed(range(model.LAYERS)):
        whole = await model.allgather(model.weights[layer], layer, group="dp")
        new, grad = model.backward(layer, inputs.pop(), grad, whole)
        new = await model.scatterreduce(new, layer, group="dp")
        new, model.opt_states[layer] = model.update(layer, new, model.weights[layer], model.opt_states[layer])
        model.weights[layer] = new
        model.set_final_weight(layer, new)

async def to_the_neighbour(model):
    await model.pass_to(0, model.get_activation([model.index("dp")]))
'''

FOLDED = ["sharded.py", "sharded", "--size", "3,8,8", "--mesh", "dp=8", "--fold", "dp"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("sharded.py").write_text(SHARDED)


def test_the_figures_are_those_of_a_run_of_all_ranks() -> None:
    names: dict[str, object] = {}
    exec(SHARDED, names)
    report = referee(run(names["sharded"], 3, 8, 8, setting=Setting(mesh={"dp": 8})).trace)  # type: ignore[arg-type]
    text = shown("run", *FOLDED)
    for fact in ("Correct: ", f"{report.timesteps:g} timesteps", f"{report.peak.memory:,} elements"):
        assert fact in text
    assert f"{report.ranks[5].bytes_sent:,}" in text
    assert "Rank 0 is of one replica, which stands for all 8" in text
    assert "folded along dp" in text


@pytest.mark.slow
def test_it_is_drawn() -> None:
    assert "Wrote run.svg" in shown("run", *FOLDED, "-o", "run.svg")
    puzzles("draw", *FOLDED, "-o", "drawn.svg")
    for name in ("run.svg", "drawn.svg"):
        picture = Path(name).read_text()
        assert "rank 0: all-gather layer 0" in picture
        assert "rank 1:" not in picture
    assert "rank 0" in shown("draw", *FOLDED, "--text")


# What is possible is added up for each pair of replicas, so a few more than may be played have to do.
@pytest.mark.parametrize("replicas", [1025, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_job_that_is_too_large_to_play_whole_can_be_folded(replicas: int) -> None:
    size = ["--size", f"2,{replicas},{replicas}", "--mesh", f"dp={replicas}"]
    assert f"stands for all {replicas:,}" in shown("run", "sharded.py", "sharded", *size, "--fold", "dp")
    assert "from 1 to 1,024" in shown("run", "sharded.py", "sharded", *size, code=2)


def test_a_run_that_is_not_the_same_on_all_replicas_says_where() -> None:
    text = shown("run", "sharded.py", "to_the_neighbour", *FOLDED[2:], code=1)
    assert "line 21" in text
    assert "same rank for all replicas" in text


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--size", "2,4,4", "--mesh", "dp=2,tp=2", "--fold", "tp"], ("'tp'", "first axis", "'dp' here")),
        (["--size", "2,4,4", "--mesh", "dp=4", "--fold", "dq"], ("'dq'", "'dp' here")),
        (["--size", "2,4,4", "--fold", "dp"], ("'dp'", "there is no mesh")),
        (["--size", "2,3,4", "--mesh", "dp=4", "--fold", "dp"], ("3 batches", "4 replicas", "a multiple")),
        (["--size", "2,20000,20000", "--mesh", "dp=20000", "--fold", "dp"], ("up to 10,000 for 20,000 folded",)),
        (["--fold", "dp"], ("no puzzle sharded", "--size L,B,R")),
        ([*FOLDED[2:], "--small"], ("tensors need every rank", "leave out --fold")),
        ([*FOLDED[2:], "--tensors"], ("tensors need every rank", "leave out --fold")),
        ([*FOLDED[2:], "--on", "mpi"], ("tensors need every rank", "leave out --fold")),
        ([*FOLDED[2:], "-o", "run.txt"], (".txt", ".svg")),
    ],
)
def test_bad_input_is_refused_in_a_sentence(options: list[str], facts: tuple[str, ...]) -> None:
    text = shown("run", "sharded.py", "sharded", *options, code=2)
    assert all(fact in text for fact in facts), text
    assert "Traceback" not in text
