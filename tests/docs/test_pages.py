"""README.md and the pages of the docs: they do what they show, what they name exists, and each is current."""

import ast
import csv
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from fractions import Fraction
from inspect import signature
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import puzzles.catalog.engine.puzzle as engines
import puzzles.catalog.layout as layouts
import puzzles.catalog.plan as plans
import puzzles.catalog.puzzle as texts
import puzzles.catalog.schedule as schedules
import puzzles.custom as toml_file
from docs.generate import architecture, expresses, extended, gallery, listings, screens, truth
from docs.generate.expresses import lines_of, outcome
from docs.generate.gallery import FOLDER
from docs.generate.short_schedules import SHORT, Short
from drawing import svg
from lib import COSTS, PuzzleError, Report, run
from lib.engine import ShardedEngine, launch
from lib.engine.replay.pipelining import missing
from lib.errors import install_command
from lib.ledger.named_costs import MEANINGS
from lib.planning import Job, gpu, plan, transformer
from lib.planning.job import LATENCY, REACHED, Transformer
from lib.planning.plans import time_parts
from lib.profiles import read_rules
from puzzles import version
from puzzles.catalog.path import CORE
from puzzles.cli.main import main
from puzzles.page.build import NODE_VERSION
from puzzles.sandbox import client
from puzzles.tracks import SHIPPED
from puzzles.tracks.outcomes import Score
from puzzles.tracks.plan import PLAN_PUZZLES
from puzzles.tracks.plan.judge import score_split
from tests.oracles.published_runs import EXPERTS, seconds_of
from tests.screens.scenes import MISTAKES
from tests.support.commands import ROOT, as_line, puzzles
from tests.support.mpi import mpiexec_or_skip
from tests.support.pages import blocks, page, read_link
from tests.support.profiles import TRACES
from tests.test_imports import imports, modules

# --- Pages of the docs: their code and commands do what they show, what they name exists, and each is on the site ---


def outputs(lines: Iterable[str]) -> list[str]:
    """What each of these commands prints, which all end well."""
    return [puzzles(*line.split()[1:], code=0).output for line in lines]


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
        kinds.append(read_link(done.stdout.strip())[1])
    assert kinds == ["code", "run"]
    assert f"{NODE_VERSION} or newer" in page("docs/browser.md")


# --- What pages name ---


@pytest.mark.parametrize(("name", "least"), [("docs/architecture.md", 40), ("CONTRIBUTING.md", 20)])
def test_every_path_exists(name: str, least: int) -> None:
    paths = re.findall(r"`((?:lib|drawing|puzzles|solutions|notebooks|tests|docs)/[\w./]*)`", page(name))
    assert len(paths) > least
    assert [path for path in paths if not (ROOT / path).exists()] == []
    names = {path.name for room in ("lib", "drawing", "puzzles", "tests") for path in (ROOT / room).rglob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", page(name))) <= names


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
def test_the_commands_of_the_solver_work(in_an_empty_folder: Path, tmp_path: Path) -> None:
    lines = re.findall(r"^puzzles .*", page("docs/solver.md"), re.MULTILINE)
    shown = outputs(f"{line} --effort 0.2 --proof-seconds 1" if "solve" in line else line for line in lines)
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
def test_the_commands_for_pytorch_work(in_an_empty_folder: Path) -> None:
    Path("mine.py").write_text((ROOT / "solutions" / "zb_h1.py").read_text(encoding="utf-8"))
    lines = re.findall(r"^puzzles .*", TORCH, re.MULTILINE)
    # those on torch run in tests/engine/test_pipelining.py and tests/profiles/test_recording.py
    ran = [as_line(output) for output in outputs(line for line in lines if "--on torch" not in line)]
    assert len(ran) == 5
    assert "0SEND_F0" in Path("zb_comms.csv").read_text()
    assert "Correct: ZB-H1" in ran[2]
    assert "8 layers, 8 batches, 4 ranks" in ran[3]
    assert "27 timesteps" in ran[4]


def test_the_example_for_torchtitan_loads_the_file_that_is_exported(tmp_path: Path) -> None:
    config = tomllib.loads(blocks(TORCH, "toml")[0])
    chosen, file = config["parallelism"], tmp_path / config["parallelism"]["pipeline_parallel_schedule_csv"]
    args = ["export", str(ROOT / "solutions" / "zb_h1.py"), "zb_h1", "--format", "torch-csv", "-o", str(file)]
    puzzles(*args, code=0)
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


def test_the_commands_of_the_page_on_extended_games_work(in_an_empty_folder: Path) -> None:
    """With the pipeline of the page as the schedule."""
    (pipeline,) = (code for code in blocks(EXTENDED, "python") if "def pipeline" in code)
    code = f"from lib import Model\n{pipeline.partition('for halves')[0]}\nmy_schedule = pipeline(True)\n"
    Path("mine.py").write_text(code)
    lines = next(code for code in blocks(EXTENDED, "") if code.startswith("puzzles run"))
    shown = outputs(lines.replace("4,8,4", "4,4,4").splitlines())
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
    done = puzzles("profile", "traces/", code=0)
    assert done.output == shown


@pytest.mark.slow
def test_the_picture_of_the_page_on_profiles_is_todays(tmp_path: Path) -> None:
    target = tmp_path / "profile.svg"
    puzzles("profile", str(TRACES / "1f1b_slow"), "-o", str(target), code=0)
    assert target.read_text() == (ROOT / "docs" / "pictures" / "profile.svg").read_text()


@pytest.mark.slow
def test_the_files_that_the_page_on_profiles_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").symlink_to(TRACES / "1f1b_slow")
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^puzzles (profile traces/ -o .*)", PROFILE, re.MULTILINE)
    puzzles(*line.split(), code=0)
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


# --- README.md and the pages that it begins: their code prints what they show; pictures and lists are new ---


README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAY = (ROOT / "docs" / "play.md").read_text(encoding="utf-8")
NOTEBOOKS = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
PAGES = README + NOTEBOOKS + (ROOT / "docs" / "tensors.md").read_text(encoding="utf-8")
"""The pages whose code runs in one namespace, in this order; PLAY comes last."""


def blocks_of_pages(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES + PLAY, re.MULTILINE | re.DOTALL)


def lines(block: str) -> Iterator[str]:
    return (line for line in block.splitlines() if line)


def test_the_python_runs_and_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in blocks_of_pages("python"):
        exec(compile(code, "a page", "exec"), names)
    printed = capsys.readouterr().out
    _, *outputs = blocks_of_pages("text")
    assert printed == "".join(outputs)


def test_the_message_of_the_forgotten_allreduce_is_the_one_shown() -> None:
    code = "\n".join(line for line in blocks_of_pages("python")[0].splitlines() if "model.allreduce" not in line)
    names: dict[str, object] = {}
    exec(code, names)
    error = run(names["ddp"], 2, 4, 4).error  # type: ignore[arg-type]
    assert isinstance(error, PuzzleError)
    assert str(error) == blocks_of_pages("text")[0].strip()


def test_the_commands_work_in_the_order_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without `solutions/`, which `--against` finds where the game is installed. The reader has written
    `my_schedule`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    for line in lines("".join(blocks_of_pages("console"))):
        words = shlex.split(line.removeprefix("$ puzzles "), comments=True)
        if "my_schedule" in words:
            pipeline = (ROOT / "solutions" / "gpipe.py").read_text(encoding="utf-8")
            (tmp_path / "mine.py").write_text(pipeline.replace("def gpipe", "def my_schedule"), encoding="utf-8")
        result = puzzles(*words)
        unsolved = words[0] in ("grade", "draw")
        assert result.exit_code == (1 if unsolved else 0), f"{line}: {result.output}"
    assert (tmp_path / "mine.py").exists()


@pytest.mark.parametrize("file", listings.PAGES, ids=lambda file: file.name)
def test_a_page_lists_the_puzzles_of_today(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == listings.PAGES[file](), "out of date: make docs"


def test_every_view_of_the_map_has_every_puzzle_once_and_every_link_leads_to_its_file() -> None:
    _, *views = listings.MAP.read_text(encoding="utf-8").split("\n## ")
    assert len(views) == 3
    for view in views:
        links = re.findall(r"\[(\w+)\]\(\.\./([\w/]+\.toml)\)", view)
        assert sorted(slug for slug, _ in links) == sorted(SHIPPED)
        assert all((ROOT / path).is_file() and Path(path).stem == slug for slug, path in links)


def test_the_first_pictures_are_what_is_drawn_today() -> None:
    for name, picture in islice(gallery.pictures(), 4):
        assert (gallery.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == svg(picture), "out of date: make docs"


@pytest.mark.slow
def test_the_pictures_are_what_is_drawn_today() -> None:
    drawn = {f"{name}.svg": svg(picture) for name, picture in gallery.pictures()}
    shown = {path.name: path.read_text(encoding="utf-8") for path in gallery.FOLDER.iterdir()}
    for name in ("profile", *(f"screen_{name}" for name in screens.SHOWN)):  # which other tests draw
        del shown[f"{name}.svg"]
    assert sorted(shown) == sorted(drawn), "a picture is missing or left over: make docs"
    assert [name for name in drawn if shown[name] != drawn[name]] == [], "out of date: make docs"


def test_every_picture_is_shown() -> None:
    page = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("pictures", "field"))
    assert sorted(set(re.findall(r"\((?:docs/)?pictures/(.*?)\)", page + README))) == sorted(
        path.name for path in gallery.FOLDER.iterdir()
    )
    for path in re.findall(r"\]\((docs/[^)]*)\)", README):
        assert (ROOT / path).exists(), path


# --- docs/architecture.md: the stops of a run are those of a real run, in their order, and every room has a line ---


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

FOLLOW = """
def follow(path, root):
    '''Writes each function of ours, when it is first called, to a file that forked processes share.'''
    import mmap, sys
    with open(path, "r+b") as file:
        log = mmap.mmap(file.fileno(), 0)
    seen = set()

    def note(frame, event, arg):
        code = frame.f_code
        key = code.co_filename, code.co_qualname
        if event == "call" and key not in seen and code.co_filename.startswith(root):
            seen.add(key)
            row = f"{code.co_filename[len(root) + 1:]} {code.co_qualname}\\n".encode()
            at = int.from_bytes(log[:8], "little") or 8
            log[at : at + len(row)] = row
            log[:8] = (at + len(row)).to_bytes(8, "little")

    sys.setprofile(note)
"""


def stops() -> list[str]:
    return [
        f"{file} {name}" for file, name in re.findall(r"^\|[ \d]+\| `(.*?)` \| `(.*?)` \|", ARCHITECTURE, re.MULTILINE)
    ]


@pytest.mark.slow
@pytest.mark.own_server
def test_a_run_makes_the_ten_stops_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process tier, whose processes can write to the file; the profile of a parent goes on in its forks."""
    log, submission = tmp_path / "log", tmp_path / "mine.py"
    log.write_bytes(bytes(1 << 20))
    submission.write_text((ROOT / "solutions" / "ddp.py").read_text(encoding="utf-8"), encoding="utf-8")
    command = client.command

    def followed(*given: object) -> list[str]:
        *words, program = command(*given)  # type: ignore[arg-type]
        return [*words, f"{FOLLOW}\nfollow({str(log)!r}, {str(ROOT)!r})\n{program}"]

    monkeypatch.setattr(client, "command", followed)
    names: dict[str, object] = {}
    exec(FOLLOW, names)
    before = sys.getprofile()
    names["follow"](str(log), str(ROOT))  # type: ignore[operator]
    try:
        main(["grade", str(submission), "--puzzle", "ddp"], standalone_mode=False)
    finally:
        sys.setprofile(before)
    written = log.read_bytes()
    called = written[8 : int.from_bytes(written[:8], "little")].decode().splitlines()
    named = stops()
    assert len(re.findall(r"^\| +\d+ \|", ARCHITECTURE, re.MULTILINE)) == 10
    assert [*dict.fromkeys(call for call in called if call in named)] == named


def test_the_arrows_of_the_picture_are_the_imports() -> None:
    """Against the imports as tests/test_imports.py reads them: none is missing, and none is there without an import."""
    places = {name: room for name in modules() if (room := architecture.room_of(name))}
    direct = {(room, places[to]) for name, room in places.items() for to, _ in imports(name) if to in places}
    drawn = {(room, to) for room, ends in architecture.arrows(architecture.built_on()).items() for to in ends}
    chains = set(drawn)
    while longer := {(a, d) for a, b in chains for c, d in drawn if b == c} - chains:
        chains |= longer
    assert {(room, to) for room, to in direct if room != to} <= chains
    outside = {to for name in modules() if name not in places for to, _ in imports(name)}
    assert {(room, to) for room, to in drawn - direct if not any(places.get(name) == to for name in outside)} == set()


def test_the_picture_is_that_of_today() -> None:
    assert (ROOT / "docs/pictures/architecture.svg").read_text(encoding="utf-8") == svg(architecture.picture())


QUESTIONS = re.findall(r"^\| (.*\?) \| `(.*?)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("question", "file"), QUESTIONS)
def test_a_strangers_question_finds_its_file(question: str, file: str) -> None:
    """A search for the noun, which is marked in the question: names of files first, then the files that use it most."""
    (noun,) = re.findall(r"\*(.*?)\*", question)
    rows = []
    for path in (path for name in ("lib", "drawing", "puzzles") for path in (ROOT / name).rglob("*")):
        if path.suffix in (".py", ".toml"):
            uses = path.read_text(encoding="utf-8").lower().count(noun.lower())
            rows.append((noun.lower() not in path.stem.lower(), -uses, path.relative_to(ROOT).as_posix()))
    assert file in [name for *_, name in sorted(rows)[:3]]


def test_ten_questions_are_asked() -> None:
    assert len(QUESTIONS) == 10


# --- docs/teaching.md: its commands are run as they are shown, one after the other, and its list of fields is
# complete ---


TEACHING = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")


def run_line(line: str) -> tuple[int, str]:
    """A line of a shell: one of our commands, or mkdir or cp."""
    words = [str(found) for word in shlex.split(line, comments=True) for found in sorted(Path().glob(word)) or [word]]
    match words:
        case ["puzzles", *rest]:
            result = CliRunner().invoke(main, rest)
            assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
            return result.exit_code, result.output
        case ["mkdir", folder]:
            Path(folder).mkdir()
        case ["cp", source, target]:
            shutil.copy(source, target)
        case _:
            raise AssertionError(f"the test cannot run: {line}")
    return 0, ""


@pytest.mark.slow
def test_the_commands_of_the_page_work_in_their_order(in_an_empty_folder: Path) -> None:
    said = {}
    for language, block in re.findall(r"^```(sh|toml|python)\n(.*?)^```", TEACHING, re.MULTILINE | re.DOTALL):
        if language != "sh":
            first = block.partition("\n")[0]
            Path(first.removeprefix("# ") if first.startswith("# ") else "week3/relay.toml").write_text(block)
            continue
        for line in block.splitlines():
            code, said[line] = run_line(line)
            wanted = re.search(r"# exits with (\d)", line)
            assert code == int(wanted[1] if wanted else 0), said[line]
    advised = [c for output in said.values() for c in re.findall(r"(puzzles (?:show|hint) relay [^']+)'", output)]
    assert {"show", "hint"} == {command.split()[1] for command in advised}
    assert [run_line(command)[0] for command in advised] == [0] * len(advised), "with the folder, as it was given"
    assert "grade mine.py --puzzles week3" in "".join(said.values())
    (checked,) = (output for line, output in said.items() if "check week3" in line)
    assert "relay: ready" in checked
    assert "time = 7" in Path("week3/relay.toml").read_text()
    (elsewhere,) = re.findall(r"^```\n(\[\[reference_at\]\].*?)^```", TEACHING, re.MULTILINE | re.DOTALL)
    assert elsewhere in Path("week3/relay.toml").read_text(), "as it is shown"
    book = list(csv.DictReader(Path("book.csv").read_text().splitlines()))
    assert [(row["ID"], row["relay"], row["points"]) for row in book] == [
        ("ann", "11.0", "11.0"),
        ("ben", "5.0", "5.0"),
    ]
    for name in ("out/index.html", "autograder.zip", "books/week3.ipynb"):
        assert Path(name).is_file(), name
    assert len(list(Path("out/students").iterdir())) == 2


def test_every_field_is_in_the_table() -> None:
    source = "".join(map(inspect.getsource, (toml_file, texts, schedules, engines, plans, layouts)))
    source = source.replace(inspect.getsource(texts.paper), "")  # its fields are those of papers.toml
    fields = set(re.findall(r'fields\.\w+\(\s*"(\w+)"', source))
    table = TEACHING.partition("| field |")[2].partition("\n\n")[0]
    assert fields - set(re.findall(r"\[*(\w+)\]*`", table)) == set()
    assert len(fields) > 20


# --- docs/planner.md: its commands work, print what is shown, and lead to the decision that it tells of ---


PLANNER = page("docs/planner.md")
COMMANDS = re.findall(r"^puzzles plan .*", PLANNER, re.MULTILINE)
SHOWN = blocks(PLANNER, "text")
EXAMPLE = next(line for line in COMMANDS if "--pareto" in line)
CONFIGS = [line for line in COMMANDS if "run.toml" in line]
MEASURED = [line for line in COMMANDS if "run.json" in line or "mine.toml" in line]
HEAVY = [line for line in COMMANDS if "mixtral" in line or "gpt-3" in line or "32768" in line or "qwen3" in line]


def ran(line: str) -> Result:
    return puzzles(*line.split()[1:], code=0)


def plain(text: str) -> str:
    """Without the blanks that fill a table's rows."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.mark.slow
def test_the_example_prints_and_draws_what_is_shown(in_an_empty_folder: Path) -> None:
    assert plain(ran(EXAMPLE).stdout) == plain(SHOWN[0])
    assert "of the fullest GPU" in Path("front.svg").read_text(encoding="utf-8")
    assert "one replica, in milliseconds" in Path("fastest.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_python_of_the_page_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(PLANNER, "python")
    exec(compile(code, "planner.md", "exec"), {})
    assert capsys.readouterr().out == SHOWN[1]


@pytest.mark.slow
def test_a_slow_network_changes_the_decision() -> None:
    slow, alone = (line for line in COMMANDS if "gpu.network" in line)
    fast = json.loads(ran(f"{EXAMPLE.partition(' --pareto')[0]} --json").stdout)[0]
    first, other = (json.loads(ran(f"{line} --json").stdout)[0] for line in (slow, alone))
    assert [f"{one['seconds']:.2f}" for one in (first, fast, other)] == re.findall(
        r"\d\.\d\d(?= s instead|\. It sends| s\. It gathers)", PLANNER
    )
    assert (first["split"]["pp"], first["split"]["tp"], first["split"]["zero"]) == (2, 2, 1)
    assert (first["links"]["pp"], first["links"]["tp"], first["links"]["dp"]) == ("nvlink", "nvlink", "network")
    assert (other["split"]["shards"], other["links"]["dp"], other["links"]["groups"]) == (8, "nvlink", "network")
    sent = [round(first["sent"]["dp"] / 1e9), round(other["sent"]["groups"] / 1e9)]
    assert [f"{count} GB" for count in sent] == re.findall(r"sends (\d+ GB)", PLANNER)


@pytest.mark.slow
def test_the_config_of_the_page_is_written_and_read(in_an_empty_folder: Path) -> None:
    write, read = CONFIGS
    ran(write)
    assert Path("run.toml").read_text(encoding="utf-8").startswith("# torchtitan v0.2.2")
    shown = " ".join(ran(read).stdout.split())
    assert "It fits the 78.0 GiB" in shown
    assert "waiting" in shown


@pytest.mark.slow
def test_the_measured_run_of_the_page_is_calibrated(in_an_empty_folder: Path) -> None:
    (run,) = blocks(PLANNER, "json")
    Path("run.json").write_text(run, encoding="utf-8")
    calibrate, train = MEASURED
    ran(calibrate)
    assert "Measured peak 66.0 GiB" in Path("mine.toml").read_text(encoding="utf-8")
    assert "GPU hours" in " ".join(ran(train).stdout.split())


def test_the_figures_of_experts_are_those_of_the_published_runs() -> None:
    """Measured and predicted seconds of two runs, and a run that waits for its host for most of its step."""
    rows = ("Qwen3 30B BF16 EP16 alltoall", "Qwen3 30B BF16 EP16 overlap", "Qwen3 30B MXFP8 mbs1 b200 8")
    apart, overlapped, late = (next(run for run in EXPERTS if run.row == row) for row in rows)
    text = " ".join(PLANNER.split())
    measured = f"took {apart.figure:.1f} s a step with all-to-alls, and {overlapped.figure:.1f} s with HybridEP"
    predicted = [f"{seconds_of(run):.1f}" for run in (apart, overlapped)]
    assert measured in text
    assert f"the planner says {predicted[0]} and {predicted[1]} s" in text
    seconds = late.job.tokens / late.figure / late.job.gpus
    assert f"takes {seconds:.1f} s, of which kernels" in text
    assert time_parts(plan(late.job, late.split))["host"] > seconds / 2


@pytest.mark.parametrize("line", [pytest.param(one, marks=pytest.mark.slow) for one in HEAVY])
def test_the_other_commands_work(line: str) -> None:
    shown = ran(line).stdout
    if "--json" in line:
        assert all(0 < one["mfu"] < 1 for one in json.loads(shown))


def test_every_command_of_the_page_is_one_of_these() -> None:
    tested = {EXAMPLE, *CONFIGS, *MEASURED, *HEAVY, *(line for line in COMMANDS if "gpu.network" in line)}
    assert [line for line in COMMANDS if line not in tested] == ["puzzles plan --list"]
    listed = ran("puzzles plan --list").stdout
    assert all(name in listed for name in ("llama-3-405b", "gpt-1t", "b200", "Grattafiori"))


# --- docs/mistakes.md and the screens in README.md are drawn from the approved screens, and are current ---


@pytest.mark.parametrize("name", screens.SHOWN)
def test_the_picture_of_a_screen_is_current_and_loads_nothing(name: str) -> None:
    file = FOLDER / f"screen_{name}.svg"
    drawn = file.read_text(encoding="utf-8")
    assert drawn == screens.picture(name), "make docs"
    assert "url(" not in drawn.replace("url(#", "")
    assert f"docs/pictures/{file.name}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_of_mistakes_is_current() -> None:
    assert screens.PAGE.read_text(encoding="utf-8") == screens.page(), "make docs"


def test_a_page_is_at_its_address_or_in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_addresses", dict)
    assert (version.page("mistakes"), version.page("no_such_page")) == ("docs/mistakes.md", "")
    monkeypatch.setattr(version, "_addresses", lambda: {"Documentation": "https://acme.example/docs/"})
    assert version.page("mistakes") == "https://acme.example/docs/mistakes/"


def test_there_are_twenty_mistakes_in_the_order_of_the_path() -> None:
    places = [CORE.index(mistake.path.partition("/")[0]) for mistake in MISTAKES]
    assert len({mistake.path for mistake in MISTAKES}) == 20
    assert places == sorted(places)
