"""Gradescope: the documented results of one student, never of many, and an autograder that sets itself up and grades in
a root of its own without network."""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from puzzles.catalog.fields import Fields
from puzzles.judge.verdict import Graded, Scoring, Verdict
from puzzles.teaching.course_file import Course, late_from, read_course
from puzzles.teaching.export import gradescope
from puzzles.teaching.gradescope import Autograder, packed_again
from puzzles.teaching.writing import begin
from tests.support import environments
from tests.support.commands import SOLUTIONS, puzzles
from tests.support.course import loop, rules

POINTS = "puzzles = ['week3']\n[points]\nrelay = 10\nfsdp = 2\n"


def results_of(*words: object) -> dict[str, Any]:
    """What a command that grades the last of these paths writes."""
    out = Path(str(words[-1])).parent / "results.json"
    puzzles(*words, "--trust", "-o", out)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.fixture
def student(tmp_path: Path) -> Path:
    """Two files of one student: FSDP with too much memory, and DDP."""
    folder = tmp_path / "ann"
    folder.mkdir()
    fat = (SOLUTIONS / "fsdp.py").read_text().replace("del activations[layer]", "pass; activations[layer]")
    (folder / "one.py").write_text(fat)
    shutil.copy(SOLUTIONS / "ddp.py", folder / "two.py")
    return folder


DOCUMENTED = {
    "": {"score", "execution_time", "output", "output_format", "test_output_format", "test_name_format", "visibility",
         "stdout_visibility", "extra_data", "tests", "leaderboard"},
    "tests": {"score", "max_score", "status", "name", "name_format", "number", "output", "output_format", "tags",
              "visibility", "extra_data"},
    "leaderboard": {"name", "value", "order"},
}  # fmt: skip
"""The keys of Gradescope's specification."""


@pytest.mark.slow
def test_results_have_the_documented_form_with_html_pictures_and_a_leaderboard(student: Path) -> None:
    here = rules(student.parent, "one_student = true\n[points]\nfsdp = 10\nddp = 5\ngpipe = 1\n")
    found = results_of("class", here, student)
    assert set(found) <= DOCUMENTED[""]
    for name in ("tests", "leaderboard"):
        assert all(set(row) <= DOCUMENTED[name] for row in found[name])
    assert (found["score"], found["visibility"], found["stdout_visibility"]) == (10, "visible", "hidden")
    ddp, fsdp, gpipe = found["tests"]
    assert [(t["score"], t["max_score"], t["status"]) for t in (ddp, fsdp, gpipe)] == [
        (5, 5, "passed"), (5, 10, "failed"), (0, 1, "failed")
    ]  # fmt: skip
    assert {t["output_format"] for t in found["tests"]} == {"html"}
    assert "<strong>What to try:</strong>" in fsdp["output"]
    assert "never read again" in fsdp["output"], "why the peak is where it is"
    assert "not attempted" in gpipe["output"]
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', ddp["output"])
    assert len(images) == 2
    assert {ElementTree.fromstring(base64.b64decode(one)).tag.rpartition("}")[2] for one in images} == {"svg"}
    assert found["leaderboard"] == [
        {"name": "stars", "value": 3},
        {"name": "ddp timesteps", "value": 5.1, "order": "asc"},
        {"name": "ddp peak", "value": 1_835_008, "order": "asc"},
        {"name": "ddp traffic", "value": 786_432, "order": "asc"},
    ]


def test_a_player_cannot_write_html(tmp_path: Path) -> None:
    folder = tmp_path / "eve"
    folder.mkdir()
    (folder / "mine.py").write_text("async def ddp(model):\n    raise ValueError('<script>alert(1)</script> `x`')\n")
    (test,) = results_of("grade", "--puzzle", "ddp", folder)["tests"]
    assert "<script" not in test["output"]
    assert "<code>x</code>" in test["output"]


def test_a_class_is_never_merged_into_one_result(student: Path) -> None:
    out = student.parent / "results.json"
    (student.parent / "ben").mkdir()
    refused = puzzles("grade", "--trust", student.parent, "-o", out, code=2)
    assert "one student" in refused.output
    assert "there are 2 submissions" in refused.output
    assert "--one-student" in refused.output
    assert not out.exists()


def a_wheel(folder: Path) -> Path:
    """Something in the form of a wheel of the game."""
    wheel = folder / "built" / "training_puzzles-0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("training_puzzles/__init__.py", "")
    return wheel


def test_an_autograder_is_the_same_bytes_each_time_and_says_what_it_needs(tmp_path: Path) -> None:
    wheel = a_wheel(tmp_path)
    begin("relay", "schedule", tmp_path / "week3")
    file = tmp_path / "week3" / "relay.toml"
    file.write_text(file.read_text() + "[targets]\ntime = 5\nmemory = 1_800_000\n")
    made = []
    for name in ("a.zip", "b.zip"):
        words = ("--course", rules(tmp_path, POINTS), "--wheel", wheel)
        done = puzzles("gradescope", "-o", tmp_path / name, *words)
        assert "12 points" in done.output
        made.append((tmp_path / name).read_bytes())
    assert made[0] == made[1]
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
        course = tomllib.loads(archive.read("course/course.toml").decode())
    assert (modes["setup.sh"], modes["run_autograder"]) == (0o755, 0o755), "both in the root of the archive"
    assert {"wheels/training_puzzles-0-py3-none-any.whl", "puzzles/week3/solutions/relay.py"} < set(modes)
    assert course["points"] == {"relay": 10, "fsdp": 2}
    assert (course["puzzles"], course["one_student"]) == (["../puzzles/week3"], True)


def test_what_cannot_be_built_is_refused(tmp_path: Path) -> None:
    for words, said in (
        ((), "--puzzle fsdp"),
        (("--course", rules(tmp_path, "[points]\nfsd = 1\n")), "did you mean 'fsdp'"),
        (("--puzzle", "fsdp", "--wheels", tmp_path), "has no wheels"),
        (("--puzzle", "fsdp", "--wheel", a_wheel(tmp_path), "-o", tmp_path / "no" / "a.zip"), "cannot write"),
        (("--puzzle", "fsdp", "--wheel", __file__), "test_gradescope.py is not a wheel of the game"),
        (("--puzzle", "relay"), "for your teacher's puzzles, add --puzzles FOLDER"),
    ):
        done = puzzles("gradescope", *words)
        assert done.exit_code != 0, words
        assert said in done.output, (words, done.output)


def requirements(name: str, seen: set[str] | None = None) -> Iterator[str]:
    """The installed packages that a package depends on, itself included."""
    seen = set() if seen is None else seen
    if name.lower() in seen:
        return
    seen.add(name.lower())
    try:
        needed = distribution(name).requires or []
    except PackageNotFoundError:
        return
    yield name
    for one in needed:
        if "extra ==" not in one:
            yield from requirements(re.match(r"[\w.-]+", one)[0], seen)  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.skipif(not environments.can_build(), reason="needs pip and hatchling")
@pytest.mark.skipif(not shutil.which("unshare") or os.getuid() != 0, reason="only root can have a root tree")
def test_an_autograder_sets_itself_up_and_grades_in_a_root_of_its_own_without_network(tmp_path: Path) -> None:
    """As Gradescope does it: the file unpacked in /autograder/source, setup once, then a run for each submission."""
    (tmp_path / "wheels").mkdir()
    for name in requirements("training-puzzles"):
        if name != "training-puzzles":
            packed_again(distribution(name), tmp_path / "wheels")
    begin("relay", "schedule", tmp_path / "week3")
    file = tmp_path / "week3" / "relay.toml"
    file.write_text(file.read_text() + "[targets]\ntime = 5\nmemory = 1_800_000\n")
    points = "puzzles = ['week3']\n[points]\nrelay = 10\nddp = 5\nDataParallel = 2\n"
    words = ("--course", rules(tmp_path, points), "--wheels", tmp_path / "wheels")
    puzzles("gradescope", "-o", tmp_path / "a.zip", *words, code=0)
    home = tmp_path / "autograder"
    for name in ("source", "submission", "results"):
        (home / name).mkdir(parents=True)
    home.chmod(0o755)
    subprocess.run(["unzip", "-q", tmp_path / "a.zip", "-d", home / "source"], check=True)
    shutil.copy(home / "source" / "run_autograder", home / "run_autograder")

    def inside(script: str) -> subprocess.CompletedProcess[str]:
        new = tmp_path / "root"
        shown = ("/usr", "/etc", "/lib", "/lib64", "/bin", "/dev", sys.base_prefix)
        binds = [(folder, folder) for folder in shown if os.path.exists(folder)] + [(str(home), "/autograder")]
        steps = [f"mkdir -p {new}", f"mount -t tmpfs tree {new}"]
        for folder, at in binds:
            steps += [f"mkdir -p {new}{at}", f"mount --rbind {folder} {new}{at}"]
        steps += [f"mkdir -p {new}/proc {new}/tmp {new}/root", f"mount -t proc proc {new}/proc"]
        path = f"{sys.base_prefix}/bin:/usr/bin:/bin"
        variables = ["HOME=/root", f"PATH={path}", f"AUTOGRADER_PYTHON={Path(sys.executable).resolve()}"]
        steps += [f"exec chroot {new} env -i {shlex.join(variables)} bash -c 'cd /autograder && exec bash {script}'"]
        command = ["unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "bash", "-ec", "\n".join(steps)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    setup = inside("/autograder/source/setup.sh")
    assert setup.returncode == 0, setup.stdout + setup.stderr

    def grade(**files: str) -> dict[str, Any]:
        shutil.rmtree(home / "submission")
        (home / "submission").mkdir()
        for name, text in files.items():
            (home / "submission" / f"{name}.py").write_text(text)
        done = inside("/autograder/run_autograder")
        assert done.returncode == 0, done.stderr
        results: dict[str, Any] = json.loads((home / "results" / "results.json").read_text())
        return results

    good = grade(a=(tmp_path / "week3" / "solutions" / "relay.py").read_text(), b=(SOLUTIONS / "ddp.py").read_text(),
                 c=(SOLUTIONS / "engine" / "data_parallel.py").read_text())  # fmt: skip
    assert good["score"] == 17, good
    assert good["tests"][0]["output"].count("<img") == 2
    stolen = "/autograder/source/puzzles/week3/solutions/relay.py"
    thief = grade(a=f"print(open({stolen!r}).read())\nasync def relay(model):\n    pass\n")
    assert thief["score"] == 0
    assert "Error" in json.dumps(thief)
    assert "load_weights" not in json.dumps(thief["tests"])
    nothing = grade()
    assert nothing["score"] == 0
    assert ".py or .ipynb" in nothing["tests"][0]["output"].lower()


def test_a_submission_without_a_file_gets_tests_that_say_so(tmp_path: Path) -> None:
    for name in ("empty", "pdf"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "pdf":
            (folder / "report.pdf").write_bytes(b"%PDF")
        found = results_of("grade", "--one-student", "--puzzle", "ddp", folder)
        (test,) = found["tests"]
        assert (test["score"], test["max_score"]) == (0, 1)
        assert ".py or .ipynb" in test["output"]


@pytest.mark.slow
def test_students_are_told_no_options(tmp_path: Path) -> None:
    words = {"it printed more than 5 bytes; print less, or allow more with --limit output=64M":
             "it printed more than 5 bytes; print less",
             "a run needs none; see --limit processes=9": "a run needs none",
             "use x--y, not y; - or --": "use x--y, not y; - or --"}  # fmt: skip
    for text, wanted in words.items():
        graded = Graded("a", (Verdict("ddp", "schedule", "failed", {}, message=text, notes=(text,), advice=text),))
        (test,) = gradescope(graded, Scoring())["tests"]
        assert wanted in test["output"]
        assert (text in test["output"]) == (text == wanted)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "a.py").write_text(loop("basic"))
    (test,) = results_of("grade", "--one-student", "--puzzle", "basic", "--limit", "time=1s", folder)["tests"]
    assert "look for a loop" in test["output"]
    assert not re.search(r"--\w", re.sub(r'src="[^"]*"', "", test["output"]))


def test_an_autograder_hands_on_rules_and_packages(tmp_path: Path) -> None:
    given = Course(shares={"partial": 0.25}, strict=True, late=late_from(Fields("", {"due": "2026-11-20"}), tmp_path))
    options, packages = ["--limit", "time=2s"], ["matplotlib>=3", "pandas"]
    scripts = Autograder({"ddp": 5.0}, given, options, [], tmp_path / "w.whl", (), packages)
    assert b"PACKAGES=('matplotlib>=3' pandas)" in scripts._script("setup.sh")
    assert b'"${PACKAGES[@]}"' in scripts._script("setup.sh")
    assert b"OPTIONS=(--limit time=2s)" in scripts._script("run_autograder")
    unpacked = read_course(rules(tmp_path, scripts.rules()))
    wanted = replace(given, file=unpacked.file, submissions=unpacked.submissions, points={"ddp": 5}, one_student=True)
    assert unpacked == replace(wanted, late=None), "what is late, Gradescope knows"
    refused = puzzles("gradescope", "--puzzle", "ddp", "--with", "$(rm)", "-o", tmp_path / "a.zip")
    assert (refused.exit_code, "--with" in refused.stderr) == (2, True)
