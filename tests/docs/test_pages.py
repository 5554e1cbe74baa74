"""Pages of the docs: their code and commands do what they show, what they name exists, and each is on the site."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict
from fractions import Fraction
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from docs.generate import expresses, extended, truth
from docs.generate.expresses import lines_of, outcome
from docs.generate.short_schedules import SHORT, Short
from lib import COSTS, Report
from lib.engine import ShardedEngine, launch
from lib.engine.replay.pipelining import missing
from lib.errors import install_command
from lib.ledger.named_costs import MEANINGS
from lib.planning import Job, gpu, transformer
from lib.planning.job import LATENCY, REACHED, Transformer
from lib.profiles import read_rules
from puzzles.catalog.plan import PLAN_PUZZLES
from puzzles.page.build import NODE_VERSION
from puzzles.page.links import read
from puzzles.tracks.outcomes import Score
from puzzles.tracks.plan.judge import score_split
from tests.support.commands import puzzles
from tests.support.mpi import mpiexec_or_skip
from tests.support.pages import blocks, page
from tests.support.profiles import TRACES
from tests.test_imports import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["browser", "engine", "extended", "layout", "solver", "torch", "truth"])
def test_the_python_of_a_page_prints_what_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    text = page(f"docs/{name}.md")
    for code in blocks(text, r"python[^\n]*"):
        exec(compile(code, f"{name}.md", "exec"), names)
    assert capsys.readouterr().out == "".join(blocks(text, "text"))


@pytest.mark.slow
def test_the_tables_of_the_truth_are_what_is_measured() -> None:
    assert truth.FILE.read_text(encoding="utf-8") == truth.page(), "out of date: make docs"


def test_captions_of_two_plans_have_the_bytes_that_are_drawn() -> None:
    captions = re.findall(r"([\d,]+) bytes by GSPMD's rule, ([\d,]+) solved\]\((.*?)\)", page("docs/pictures.md"))
    assert len(captions) == 3
    for *both, file in captions:
        assert re.findall(r"([\d,]+) bytes moved", page(f"docs/{file}"))[:2] == both


def test_the_commands_of_the_page_on_browsers_print_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    kinds = []
    for command in re.findall(r"^puzzles (share .*)$", page("docs/browser.md"), re.MULTILINE):
        done = puzzles(*command.split())
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.startswith("https://example.org/puzzles/#gpipe/")
        kinds.append(read(done.stdout.strip())[1])
    assert kinds == ["code", "run"]
    assert f"{NODE_VERSION} or newer" in page("docs/browser.md")


# --- What pages name ---


@pytest.mark.parametrize(("name", "least"), [("docs/architecture.md", 40), ("CONTRIBUTING.md", 20)])
def test_every_path_exists(name: str, least: int) -> None:
    paths = re.findall(r"`((?:lib|drawing|puzzles|solutions|notebooks|tests|docs)/[\w./]*)`", page(name))
    assert len(paths) > least
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/browser.md", "docs/notebooks.md"])
def test_the_make_targets_exist(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", page(name), re.MULTILINE))
    assert named
    assert named <= targets


SECURITY = re.findall(
    r"^\| (.+) \| (\w+) \| (\w+) \| (\w+) \| `(\w+)::(\w+)` \|$", page("docs/security.md"), re.MULTILINE
)


def test_every_line_on_security_is_shown_by_a_test_that_exists() -> None:
    assert len(SECURITY) == page("docs/security.md").count("::test_") == 30
    for what, *_, module, name in SECURITY:
        (path,) = (ROOT / "tests").glob(f"*/{module}.py")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, what


def test_marks_on_security_are_explained() -> None:
    notes = re.findall(r"^(\d)\. ", page("docs/security.md"), re.MULTILINE)
    assert {mark for row in SECURITY for mark in row[1:4]} == {"yes", "no", *notes}


def test_every_page_is_on_the_site() -> None:
    listed = page("docs/site/mkdocs.yml")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert {name for name in pages if not re.search(rf": {re.escape(name)}$", listed, re.MULTILINE)} == set()


# --- Make and pre-commit ---


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_alone_lists_every_target_with_its_meaning() -> None:
    listed = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = re.findall(r"^make ([a-z-]+) +\w.*", listed.stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert sorted(targets) == sorted(phony[1].replace("\\", " ").split())


def test_pre_commit_runs_what_make_check_runs() -> None:
    entries = re.findall(r"entry: (.*)", page(".pre-commit-config.yaml"))
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    assert entries == [
        line.strip().replace("$(BIN)", ".venv/bin").lstrip("@") for line in recipe[1].strip().splitlines()
    ]


# --- docs/solver.md and docs/torch.md ---

TORCH = page("docs/torch.md")


@pytest.mark.slow
def test_the_commands_of_the_solver_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = []
    for line in re.findall(r"^puzzles .*", page("docs/solver.md"), re.MULTILINE):
        result = puzzles(*line.split()[1:], *(["--effort", "0.2", "--proof-seconds", "1"] if "solve" in line else []))
        assert result.exit_code == 0, result.output
        shown.append(result.output)
    assert "longest span 104.7" in shown[0]
    assert "Optimal" in shown[0]
    assert "rank 7" in shown[0]
    assert "104.7 timesteps" in " ".join(shown[1].split())
    assert "over at 53" in shown[3]
    assert {path.name for path in tmp_path.iterdir()} == {"found.svg", "found.csv", "found.py", "found.json"}
    spaces: dict[str, object] = {"__name__": "found"}
    exec(compile(Path("found.py").read_text(), "found.py", "exec"), spaces)
    assert spaces["SIZE"] == (8, 32, 8)


@pytest.mark.slow
def test_the_commands_for_pytorch_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text((ROOT / "solutions" / "zb_h1.py").read_text(encoding="utf-8"))
    ran = []
    for line in re.findall(r"^puzzles .*", TORCH, re.MULTILINE):
        if "--on torch" in line:
            continue  # tests/engine/test_pipelining.py and tests/profiles/test_recording.py run them
        result = puzzles(*line.split()[1:])
        assert result.exit_code == 0, result.output
        ran.append(" ".join(result.output.split()))
    assert len(ran) == 5
    assert "0SEND_F0" in Path("zb_comms.csv").read_text()
    assert "Correct: ZB-H1" in ran[2]
    assert "8 layers, 8 batches, 4 ranks" in ran[3]
    assert "27 timesteps" in ran[4]


def test_the_example_for_torchtitan_loads_the_file_that_is_exported(tmp_path: Path) -> None:
    config = tomllib.loads(blocks(TORCH, "toml")[0])
    chosen, file = config["parallelism"], tmp_path / config["parallelism"]["pipeline_parallel_schedule_csv"]
    args = ["export", str(ROOT / "solutions" / "zb_h1.py"), "zb_h1", "--format", "torch-csv", "-o", str(file)]
    assert puzzles(*args).exit_code == 0
    assert len(file.read_text().splitlines()) == chosen["pipeline_parallel_degree"]


@pytest.mark.slow
def test_pytorch_has_the_schedule_of_the_example_for_torchtitan() -> None:
    if why := missing():
        pytest.skip(why)
    from torch.distributed.pipelining.schedules import get_schedule_class

    config = tomllib.loads(blocks(TORCH, "toml")[0])
    assert hasattr(get_schedule_class(config["parallelism"]["pipeline_parallel_schedule"]), "_load_csv")


def test_the_page_on_pytorch_says_how_to_install_what_a_refusal_asks_for() -> None:
    why = missing()
    assert ".[torch]" in TORCH
    assert not why or install_command("torch") in why


# --- docs/engine.md ---

ENGINE = page("docs/engine.md")
SENT = {"2(n-1)/n S": lambda n, s: 2 * (n - 1) * s // n, "(n-1) S": lambda n, s: (n - 1) * s}
SENT |= {"(n-1)/n S": lambda n, s: (n - 1) * s // n, "0": lambda n, s: 0}


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_bytes_of_the_engine_s_table_are_what_meters_read(n: int) -> None:
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \|.*\| ([^|]+?) \|$", ENGINE.split("## Messages")[0], re.MULTILINE)
    assert [name for name, *_ in rows] == ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
    x = np.ones((4, 3), np.float32)
    for name, arguments, sent in rows:

        class One(ShardedEngine):
            def load_checkpoint(self, params: object) -> None:
                """Nothing to load."""

            def forward(self, x: object, name: str = name, arguments: str = arguments) -> None:
                getattr(self, name)(*([x] if arguments.startswith("x") else []))

        with launch(One, n) as run:
            run.forward(x)
            assert [m.sent for m in run.meters] == [SENT[sent](n, x.nbytes)] * n, name


def test_the_signatures_of_the_engine_s_page_are_those_of_the_class() -> None:
    for name, arguments in re.findall(r"^\| `(\w+)\((\w.*?)\)` \|", ENGINE.split("## Who owns")[0], re.MULTILINE):
        parameters = list(signature(getattr(ShardedEngine, name)).parameters.values())[1:]
        defaults = [repr(p.default).replace("'", '"') for p in parameters if p.default is not p.empty]
        assert re.findall(r"=([^,]*)", arguments) == defaults, name
        assert len(arguments.split(", ")) == len(parameters), name


def test_every_public_call_of_the_engine_is_on_its_page() -> None:
    calls = [name for name in vars(ShardedEngine) if not name.startswith("_")]
    assert [name for name in calls if f"`{name}" not in ENGINE and f".{name}" not in ENGINE] == []


@pytest.mark.slow
def test_the_script_of_the_engine_s_page_runs_under_mpiexec_as_the_page_says(tmp_path: Path) -> None:
    mpiexec_or_skip()
    (tmp_path / "train.py").write_text(blocks(ENGINE, 'python title="train.py"')[0])
    command = next(line for line in "".join(blocks(ENGINE, "sh")).splitlines() if line.startswith("mpiexec -n 4"))
    bin = Path(sys.executable).parent
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{bin}:{os.environ['PATH']}", "PYTHONUNBUFFERED": ""}
    ended = subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert ended.stdout == blocks(ENGINE, "text")[0] * 4, ended.stderr


# --- docs/expresses.md ---

MOST_LINES = 25


def test_the_page_on_short_schedules_is_what_they_give() -> None:
    assert expresses.FILE.read_text(encoding="utf-8") == expresses.page()


@pytest.mark.parametrize("entry", SHORT, ids=lambda entry: entry.name)
def test_a_schedule_is_short_and_is_played_or_refused(entry: Short) -> None:
    assert isinstance(outcome(entry.name), Report) == entry.playable
    assert lines_of(entry) <= MOST_LINES


def test_names_of_short_schedules_are_unique() -> None:
    assert len({entry.name for entry in SHORT}) == len(SHORT)


# --- docs/extended.md ---

EXTENDED = page("docs/extended.md")


def test_every_known_cost_record_has_a_meaning() -> None:
    assert list(MEANINGS) == list(COSTS)


def test_every_list_of_puzzles_is_on_the_page_once() -> None:
    assert {name: EXTENDED.count(f"<!-- puzzles {name} -->") for name in extended.USES} == dict.fromkeys(
        extended.USES, 1
    )


@pytest.mark.parametrize("name", MEANINGS)
def test_a_meaning_states_prices_of_its_record_and_how_much_is_sent_in_a_step(name: str) -> None:
    costs, meaning = COSTS[name], MEANINGS[name]
    ring = [costs.by_size("allreduce", 6, sent) for sent in (0, 393_216)]  # a gradient over 4 ranks
    prices = {*costs.ticks.values(), *costs.alpha.values(), ring[0], ring[1] - ring[0]}
    figures = re.findall(r"\d+\.\d+(?= step)|(?<=takes )\d+\.\d+|(?<=collective )\d+\.\d+", meaning)
    assert set(figures) <= {costs.text(ticks) for ticks in prices}
    betas = {*costs.beta_between.values()} or {*costs.beta.values()}
    stated = {Fraction(found.replace(",", "")) for found in re.findall(r"for each ([\d,]+) elements", meaning)}
    assert stated <= {costs.unit / beta for beta in betas}
    assert bool(stated) == (
        bool(betas) and not re.match(r"\w+, in \w+ieths|overlap, with the all|hopper|microsec", meaning)
    )


def test_the_commands_of_the_page_on_extended_games_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pipeline of the page as the schedule."""
    monkeypatch.chdir(tmp_path)
    (pipeline,) = (code for code in blocks(EXTENDED, "python") if "def pipeline" in code)
    code = f"from lib import Model\n{pipeline.partition('for halves')[0]}\nmy_schedule = pipeline(True)\n"
    Path("mine.py").write_text(code)
    shown = []
    for line in (
        next(code for code in blocks(EXTENDED, "") if code.startswith("puzzles run"))
        .replace("4,8,4", "4,4,4")
        .splitlines()
    ):
        result = puzzles(*line.split()[1:])
        assert result.exit_code == 0, result.output
        shown.append(result.output)
    assert "Correct: GPipe " in shown[0]
    assert "over at 18" in shown[0]
    assert "my_schedule: 4 layers, 4 batches, 4 ranks, costs parts" in shown[1]


# --- docs/profile.md ---

PROFILE = page("docs/profile.md")


@pytest.mark.slow
def test_the_report_of_the_page_on_profiles_is_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").symlink_to(TRACES / "1f1b_slow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shown, *_ = blocks(PROFILE, "text")
    done = puzzles("profile", "traces/")
    assert done.exit_code == 0
    assert done.output == shown


@pytest.mark.slow
def test_the_picture_of_the_page_on_profiles_is_todays(tmp_path: Path) -> None:
    target = tmp_path / "profile.svg"
    done = puzzles("profile", str(TRACES / "1f1b_slow"), "-o", str(target))
    assert done.exit_code == 0
    assert target.read_text() == (ROOT / "docs" / "pictures" / "profile.svg").read_text()


@pytest.mark.slow
def test_the_files_that_the_page_on_profiles_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").symlink_to(TRACES / "1f1b_slow")
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^puzzles (profile traces/ -o .*)", PROFILE, re.MULTILINE)
    assert puzzles(*line.split()).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"traces", "run.html", "run.svg", "run.csv", "run.json"}


def test_the_names_of_the_page_on_profiles_are_rules() -> None:
    (text,) = blocks(PROFILE, "toml")
    (rule,) = read_rules(text, "names.toml")
    assert str((rule.slot("stage2 fwd mb5") or ())[0]) == "2F5"


def test_the_page_on_profiles_shows_the_report_on_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    found = puzzles("profile", str(ROOT / "tests" / "profiles" / "traces" / "llama_eager" / "rank0.json.gz"))
    assert found.output.strip() in PROFILE


# --- docs/train.md ---

TRAIN = page("docs/train.md")


def number(cell: str) -> float:
    found = re.search(r"[\d,.]+", cell)
    assert found
    return float(found[0].replace(",", ""))


def test_the_table_of_gpus_is_that_of_the_presets() -> None:
    rows = re.findall(r"^\| (\w+) \| (.*?T/s) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", TRAIN, re.MULTILINE)
    assert [row[0] for row in rows] == ["a100", "h100", "h800", "h200", "b200"]
    for name, flops, memory, bandwidth, nvlink, network in rows:
        one = gpu(name)
        assert number(flops) == round(one.flops / 1e12)
        assert number(memory) == round(one.memory / 2**30)
        assert number(bandwidth) == round(one.bandwidth / 1e12 + 1e-9, 1)
        assert (number(nvlink), number(network)) == (one.nvlink / 1e9, one.network / 1e9)


def test_the_rules_are_those_of_the_prices() -> None:
    job = Job(transformer("llama-3-8b"), gpu("h100"), 8, 8)
    assert "18 bytes: weight 2, gradient 4, " in TRAIN
    assert (job.weight, job.gradient, job.state) == (2, 4, 12)
    assert f"{LATENCY['nvlink'] * 1e6:.0f} us on NVLink, {LATENCY['network'] * 1e6:.0f} us on the network" in TRAIN
    assert "about 80 % of a link's rate" in TRAIN
    assert REACHED == 0.8
    model: Transformer = job.model
    assert 33 <= (model.whole_bytes() + model.split_bytes()) / model.hidden <= 35
    s = job.sequence
    assert model.attention_flops(s, True) == 6 * model.layers * s * model.heads * model.head_size
    assert model.model_flops(s, True) - model.attention_flops(s, True) == 6 * (
        model.active_weights + model.vocabulary_weights
    )


def test_the_example_of_the_page_on_real_jobs_is_played() -> None:
    (source,) = blocks(TRAIN, "python")
    names: dict[str, object] = {}
    exec(source, names)
    puzzle = PLAN_PUZZLES["llama_8b_16"]
    split, prediction = names["llama_8b_16"](puzzle.job)  # type: ignore[operator]
    score = score_split(puzzle, {"split": asdict(split), "prediction": asdict(prediction)})
    assert isinstance(score, Score)
    assert score.stars == 3
    assert "Right" in score.why[1]
