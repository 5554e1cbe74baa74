"""Free play: `run` and `draw` of any schedule at any size and in any setting, `costs`, and `verify`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lib import COSTS, Setting, Size, referee, run, trace_from_json, trace_to_json
from lib.ledger.setting import costs_from_json
from puzzles.cli.show import facts
from puzzles.failure import Failure
from puzzles.tracks.outcomes import RunOutcome
from puzzles.tracks.schedule.free_game import FreeGame, setting_text
from solutions.gpipe import gpipe
from tests.support.commands import puzzles

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).parents[2]
SOLUTIONS = ROOT / "solutions"
GPIPE = str(SOLUTIONS / "gpipe.py")

MINE = '''
async def mine(model):
    """Data parallel training, whatever the size."""
    weights, states, inputs, grads, weight_grads = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer)
    for step in range(model.dist.setting.steps):
        inputs[0] = model.get_activation([model.rank], step)
        for layer in range(model.LAYERS):
            inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer])
        grads[0] = model.loss(inputs.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight_grads[layer], grads[0] = model.backward(layer, inputs.pop(layer), grads[0], weights[layer])
            weight_grads[layer] = await model.allreduce(weight_grads[layer], layer)
            weights[layer], states[layer] = model.update(layer, weight_grads.pop(layer), weights[layer], states[layer])
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])

def halves(model):
    weight, state = model.load_weights(0)
    inp = model.get_activation(range(model.BATCHES))
    grad = model.loss(model.forward(0, inp, weight))
    model.set_final_weight(0, model.update(0, model.backward_weight(0, inp, grad), weight, state)[0])

def fakes(model):
    weight, state = model.load_weights(0)
    grad = model.fake_grad(0, range(model.BATCHES))
    model.set_final_weight(0, model.update(0, grad, weight, state)[0])

async def on_axes(model):
    assert model.axis("dp") == (0, 1)
    await mine(model)

def reads(model):
    open("/etc/passwd").read()

def ddp(model):
    return mine(model)
'''


COLUMNS = 100


@pytest.fixture(autouse=True)
def _mine(in_an_empty_folder: Path) -> None:
    Path("mine.py").write_text(MINE)


def shown(*arguments: str, code: int = 0) -> str:
    return " ".join(puzzles(*arguments, code=code).output.split())


# --- Run ---


def test_any_function_runs_at_any_size_and_shows_what_it_took() -> None:
    """Three layers on 5 ranks: 3 forwards and 3 x (1 + 0.3 + 0.5), the last of which ends 0.5 later than it starts."""
    text = shown("run", "mine.py", "mine", "--size", "3,5,5")
    for fact in ("3 layers, 5 batches, 5 ranks", "costs classic", "data parallelism", "7.9 timesteps", "over at 8.4"):
        assert fact in text
    assert "0.0% of the time" in text
    sent = 3 * (2 * 4 * 512 * 512 // 5) * 4  # ring: 2(N-1)/N of each weight's elements
    assert f"0-4 100.0% {'2,228,224'} 0 {sent:,}" in text
    assert f" {sent // 4:,} elements" in text
    assert "★" not in text
    assert "target" not in text


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (["--costs", "slow"], ("costs slow", "15.1 timesteps")),
        (["--steps", "3"], ("3 steps", "24.7 timesteps")),
        (["--costs", "overlap", "--task", "local"], ("costs overlap", "task local", "9.1 timesteps", "21.9%")),
        (["--mesh", "dp=2,pp=1"], ("mesh dp=2,pp=1", "7.9 timesteps")),
    ],
)
def test_the_rest_of_the_setting_has_an_option_each(options: list[str], facts: tuple[str, ...]) -> None:
    name = "on_axes" if "--mesh" in options else "mine"
    text = shown("run", "mine.py", name, "--size", "3,2,2", *options)
    assert all(fact in text for fact in facts), text


@pytest.mark.slow
def test_a_puzzles_name_at_another_size_or_in_other_costs_says_that_its_targets_do_not_apply() -> None:
    for options, fact in ((["--size", "4,4,4"], "4 layers"), (["--costs", "slow"], "costs slow")):
        text = shown("run", "mine.py", "ddp", *options)
        assert "4 ranks, costs classic;" in text
        assert fact in text
    assert "targets" not in shown("run", "mine.py", "mine", "--size", "2,4,4")


def test_a_puzzles_own_size_and_costs_are_that_puzzle() -> None:
    text = shown("run", "mine.py", "ddp", "--size", "2,4,4", "--costs", "classic", "--no-tensors")
    assert "★" in text
    assert "5.1 (< 6)" in text
    assert "as predicted" in shown("run", "mine.py", "ddp", "--size", "2,4,4", "--small")


@pytest.mark.slow
def test_tensors_are_used_when_they_are_asked_for() -> None:
    plain = shown("run", "mine.py", "mine", "--size", "2,2,2")
    assert "as predicted" not in plain
    for option in ("--small", "--tensors"):
        text = shown("run", "mine.py", "mine", "--size", "2,2,2", option)
        assert text.startswith(plain.split(" rank ")[0])
        assert "device's" in text


def test_a_schedule_that_fails_says_where_and_exits_with_1() -> None:
    text = shown("run", "mine.py", "halves", "--size", "1,2,1", code=1)
    for fact in ("line 23", "backward_weight has no price in the costs 'classic'", "costs that price it: parts"):
        assert fact in text
    assert "Correct: standard training" in shown("run", "mine.py", "halves", "--size", "1,2,1", "--costs", "parts")
    assert "fake" in shown("run", "mine.py", "fakes", "--size", "1,1,1", code=1)
    assert "'def nope(model):'" in shown("run", "mine.py", "nope", "--size", "1,1,1", code=1)


@pytest.mark.parametrize("costs", ["classic", "overlap"])
def test_a_call_that_is_not_awaited_is_shown_at_its_line(costs: str) -> None:
    """Also where it is the last one, and no line of the file runs any more."""
    Path("late.py").write_text("def late(model):\n    model.allreduce(model.fake_grad(0, []), 0)\n    return None\n")
    text = shown("run", "late.py", "late", "--size", "1,2,2", "--costs", costs, code=1)
    assert "line 2: rank 0," in text


@pytest.mark.sandboxed
def test_it_runs_in_the_sandbox_that_grades() -> None:
    secret = Path("secret.txt")
    secret.write_text("x")
    path = str(secret.resolve())
    Path("thief.py").write_text(f"def thief(model):\n    raise ValueError(open({path!r}).read() * 9)\n")
    text = shown("run", "thief.py", "thief", "--size", "1,1,1", code=1)
    assert "line 2" in text
    assert "xxxxxxxxx" not in text


@pytest.mark.slow
def test_a_large_trace_comes_back_whole() -> None:
    """More than a megabyte, to which the results of puzzles are limited."""
    text = shown("run", "mine.py", "mine", "--size", "32,32,32", "--time-limit", "60")
    assert "0-31 100.0%" in text


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        ({"trace": trace_to_json(run(gpipe, 4, 2, 2).trace)}, ("layers=4, batches=2, ranks=2", "layers=4, batches=4")),
        ({"trace": trace_to_json(run(gpipe, 4, 4, 4, setting=Setting("long")).trace)}, ("other costs", "classic")),
        ({"trace": trace_to_json(run(gpipe, 4, 4, 4, setting=Setting(steps=2)).trace)}, ("another setting", "steps")),
        ({"trace": "{"}, ("not a trace",)),
        ({"trace": 7}, ("no trace",)),
        ({}, ("no trace",)),
    ],
)
def test_a_run_that_sends_back_another_games_trace_is_refused(row: dict[str, object], facts: tuple[str, ...]) -> None:
    judged = FreeGame("mine", Size(4, 4, 4), Setting()).judged(RunOutcome(row))
    assert isinstance(judged, Failure)
    assert all(fact in judged.sentence for fact in facts), judged


# --- Draw ---


@pytest.mark.slow
def test_draw_takes_the_same_games() -> None:
    text = shown("draw", "mine.py", "mine", "--size", "2,2,2", "--costs", "overlap", "--text")
    assert "2 ranks, costs overlap" in text
    puzzles("draw", "mine.py", "ddp", "--size", "2,2,2", "--costs", "slow")
    picture = Path("ddp.svg").read_text()
    assert "costs slow" in picture
    assert "target" not in picture
    puzzles("draw", GPIPE, "gpipe", "--size", "4,4,4", "--against", GPIPE)
    assert "parts" in shown("draw", "mine.py", "halves", "--size", "1,2,1", code=1)


# --- Verify ---


def saved(text: str) -> str:
    Path("trace.json").write_text(text)
    return "trace.json"


def test_verify_reads_a_trace_with_a_whole_cost_record() -> None:
    record = costs_from_json({"name": "mine", "length": 64, "ticks": {**COSTS["classic"].ticks, "allreduce": 40}})
    trace = run(gpipe, 2, 2, 2, setting=Setting(record)).trace
    text = shown("verify", saved(trace_to_json(trace)))
    assert "2 ranks, costs mine" in text
    assert "GPipe (Huang et al." in text
    row = json.loads(puzzles("verify", "trace.json", "--json").stdout)
    report = referee(trace)
    assert (row["status"], row["name"], row["setting"]["costs"]["name"]) == ("correct", "trace", "mine")
    assert (row["timesteps"], row["peak_memory"]) == (report.timesteps, report.peak.memory)
    assert (row["traffic"], row["traffic_total"]) == (report.traffic, report.traffic_total)


def test_verify_refuses_what_is_altered_or_no_trace() -> None:
    trace = trace_to_json(run(gpipe, 4, 2, 2).trace)
    assert "GPipe (Huang et al." in shown("verify", saved(trace))
    data = json.loads(trace)
    data["operations"][0].pop(3)
    assert "not correct" in shown("verify", saved(json.dumps(data)), code=1)
    assert "cannot be judged" in shown("verify", saved("{}"), code=1)
    huge = json.dumps({**json.loads(trace), "layers": 9_999})
    assert "from 1 to 1,024" in shown("verify", saved(huge), code=1)
    assert json.loads(puzzles("verify", saved("[]"), "--json", code=1).stdout)["status"] == "failed"


# --- Costs ---


def test_costs_lists_every_record_and_shows_one() -> None:
    text = shown("costs")
    assert all(f" {name} " in f" {text} " for name in COSTS)
    assert "backward_input 1" in shown("costs", "parts")
    for name, record in COSTS.items():
        lines = " ".join(facts(record))
        assert f"activation {record.activation:,}" in lines
        assert ("overlaps with computation" in lines) == record.overlap
        assert all(f"{op} {record.text(ticks)}" in lines for op, ticks in record.ticks.items()), name
        assert all(f"{op} {record.text(ticks)}" in lines for op, ticks in record.alpha.items()), name
        assert all(f"{op} {float(record.unit / beta):,.0f}" in lines for op, beta in record.beta.items()), name
    assert "allreduce 163,840" in " ".join(facts(COSTS["islands"]))


def test_a_record_in_json_can_be_changed_and_given_back() -> None:
    record = json.loads(puzzles("costs", "copies", "--json").stdout)
    record["name"], record["ticks"]["forward"] = "slower", 20
    Path("slower.json").write_text(json.dumps(record))
    text = shown("run", "mine.py", "mine", "--size", "1,1,1", "--costs", "slower.json")
    assert "costs slower" in text
    assert "3.5 timesteps" in text


DILOCO = """
def outer(model):
    agreed, state, outer = model.load_weights(0, outer=True)
    copy = agreed
    for step in range(model.dist.setting.steps):
        inp = model.get_activation([0], step)
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, copy)), copy)
        copy, state = model.update(0, grad, copy, state)
    agreed, outer = model.outer_update(0, agreed, model.delta(0, agreed, copy), outer)
    model.set_final_weight(0, agreed)
    model.set_final_copy(0, model.merge(0, copy, agreed))
"""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["mix=1/3"], "rounds of 2 steps"),
        (["late=1"], "averages up to 1 late"),
        (["lengths=1/2"], "lengths 1/2"),
    ],
)
def test_every_other_field_of_the_setting_can_be_set(fields: list[str], said: str) -> None:
    Path("outer.py").write_text(DILOCO)
    named = [word for field in fields for word in ("--set", field)]
    options = ("--costs", "outer_steps", "--steps", "2", "--task", "outer", "--set", "outer=2", *named)
    text = " ".join(shown("run", "outer.py", "outer", "--size", "1,1,1", *options).split())
    assert said in text
    assert "Correct: " in text


def test_clipping_is_a_field_that_is_set() -> None:
    text = shown("run", "mine.py", "mine", "--size", "3,2,2", "--set", "clip=true", code=1)
    assert "scale=" in text


# --- Bad input, a sentence each ---

AT = ["run", "mine.py", "mine", "--size", "2,2,2"]


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ([*AT, "--costs", "partz"], ("no costs 'partz'", "did you mean 'parts'?", "puzzles costs")),
        ([*AT, "--costs", "zzz"], ("no costs 'zzz'", "classic, ring, parts", "experts")),
        ([*AT, "--costs", "none.json"], ("cannot read none.json",)),
        ([*AT, "--costs", "bad.json"], ("bad.json", "JSON")),
        ([*AT, "--costs", "odd.json"], ("a cost record has no price", "ticks")),
        ([*AT, "--mesh", "dp=3"], ("3 ranks", "there are 2", "multiply to")),
        ([*AT, "--mesh", "dp=1,dp=2"], ("axis dp", "twice")),
        ([*AT, "--mesh", "dp"], ("'dp' is not a mesh", "dp=2,pp=4")),
        ([*AT, "--steps", "0"], ("0 is not in the range",)),
        ([*AT, "--layer", "conv"], ("'conv'", "dense", "block", "experts")),
        ([*AT, "--task", "play"], ("'play'", "local", "infer")),
        ([*AT, "--steps", "2", "--task", "infer"], ("inference takes one step", "2")),
        ([*AT, "--set", "inner=3"], ("'inner=3' is not a field of a setting", "lag, shares, outer, late, mix, clip")),
        ([*AT, "--set", "outer"], ("'outer': write numbers, such as outer=1",)),
        ([*AT, "--set", "mix=1/0"], ("'mix=1/0': write numbers",)),
        ([*AT, "--set", "clip=yes"], ("'clip=yes': write true or false",)),
        ([*AT, "--set", "lag=1,2"], ("lag must be a whole number", "got (1, 2)")),
        ([*AT, "--set", "whole=yes"], ("'whole=yes': write true or false",)),
        ([*AT, "--costs", "parts", "--set", "frozen=0,9"], ("(0, 9) cannot be frozen",)),
        ([*AT, "--set", "kinds=a,b"], ("layer 0 is of the kind 'a'",)),
        (["run", "mine.py", "mine", "--size", "2,2"], ("layers, batches and ranks", "got 2,2")),
        (["run", "mine.py", "mine", "--size", "2,0,2"], ("from 1 to 1,024", "got 2,0,2")),
        (["run", "mine.py", "mine", "--size", "2,2,2000"], ("from 1 to 1,024", "got 2,2,2000")),
        (["run", "mine.py", "mine", "--size", "a,b,c"], ("whole number", "got a,b,c")),
        (["run", "mine.py", "mine", "--costs", "slow"], ("no puzzle mine", "--size L,B,R")),
        (["run", "mine.py", "mine"], ("no puzzle 'mine'", "with --size L,B,R")),
        (["run", "mine.py", "FSDP", "--size", "2,2,2"], ("FSDP", "track 'engine'", "for schedules")),
        ([*AT, "-n", "4"], ("-n", "--size")),
        ([*AT, "--no-tensors", "--small"], ("--no-tensors", "--small")),
        (["run", "mine.py", "FSDP", "--no-tensors"], ("FSDP", "--no-tensors")),
        (["draw", "mine.py", "mine", "--size", "2,2,2", "--pareto"], ("--pareto", "targets")),
        (["costs", "party"], ("'party'", "did you mean 'parts'?")),
        (["costs", "--json"], ("name it",)),
    ],
)
def test_bad_input_is_refused_in_a_sentence(arguments: list[str], facts: tuple[str, ...]) -> None:
    Path("bad.json").write_text("{")
    Path("odd.json").write_text('{"name": "x", "price": 1}')
    text = shown(*arguments, code=2)
    assert all(fact in text for fact in facts), text
    assert "Traceback" not in text


def test_a_setting_in_words_names_what_is_not_classic() -> None:
    assert setting_text(Setting()) == "costs classic"
    setting = Setting("slow", {"dp": 2}, 4, "block", "local")
    parts = ["costs slow", "mesh dp=2", "4 steps", "layer block", "task local"]
    assert setting_text(setting).split(", ") == parts
    assert trace_from_json(trace_to_json(run(lambda model: None, 1, 1, 2, setting=setting).trace)).setting == setting
