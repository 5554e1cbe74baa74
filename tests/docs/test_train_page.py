"""The chapter on real jobs: its tables are those of the presets and prices, and its example is played."""

from __future__ import annotations

import re
from dataclasses import asdict

from lib.planning import Job, gpu, transformer
from lib.planning.gpus import LATENCY, REACHED
from lib.planning.transformers import Transformer
from puzzles.catalog.plan import PLAN_PUZZLES
from puzzles.tracks.outcomes import Score
from puzzles.tracks.plan.judge import score_split
from tests.test_imports import ROOT

PAGE = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")


def number(cell: str) -> float:
    found = re.search(r"[\d,.]+", cell)
    assert found
    return float(found[0].replace(",", ""))


def test_the_table_of_gpus_is_that_of_the_presets() -> None:
    rows = re.findall(r"^\| (\w+) \| (.*?T/s) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    assert [row[0] for row in rows] == ["a100", "h100", "h800", "h200", "b200"]
    for name, flops, memory, bandwidth, nvlink, network in rows:
        one = gpu(name)
        assert number(flops) == round(one.flops / 1e12)
        assert number(memory) == round(one.memory / 2**30)
        assert number(bandwidth) == round(one.bandwidth / 1e12 + 1e-9, 1)
        assert (number(nvlink), number(network)) == (one.nvlink / 1e9, one.network / 1e9)


def test_the_rules_are_those_of_the_prices() -> None:
    job = Job(transformer("llama-3-8b"), gpu("h100"), 8, 8)
    assert "18 bytes: weight 2," in PAGE
    assert (job.weight, job.gradient, job.state) == (2, 4, 12)
    assert f"{LATENCY['nvlink'] * 1e6:.0f} us on NVLink, {LATENCY['network'] * 1e6:.0f} us on the network" in PAGE
    assert "about 80 % of" in PAGE
    assert REACHED == 0.8
    model: Transformer = job.model
    assert 33 <= (model.whole_bytes() + model.split_bytes()) / model.hidden <= 35
    s = job.sequence
    assert model.attention_flops(s, True) == 6 * model.layers * s * model.heads * model.head_size
    assert model.model_flops(s, True) - model.attention_flops(s, True) == 6 * (
        model.active_weights + model.vocabulary_weights
    )


def test_the_example_is_played_as_the_page_says() -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(source, names)
    puzzle = PLAN_PUZZLES["llama_8b_16"]
    split, prediction = names["llama_8b_16"](puzzle.job)  # type: ignore[operator]
    score = score_split(puzzle, {"split": asdict(split), "prediction": asdict(prediction)})
    assert isinstance(score, Score)
    assert score.stars == 3
    assert "Right" in score.why[1]
