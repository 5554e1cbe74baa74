"""Building the site: what is missing is named in a sentence, and other people's files stay. tests/browser builds it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from puzzles.page import build
from puzzles.page.__main__ import main
from puzzles.page.build import (
    DOCS,
    MARK,
    PACKAGES,
    PAGE,
    RELEASE,
    ROOT,
    WITH_NUMPY,
    Site,
    SiteError,
    files,
    licences,
    offline_worker,
    prepare,
    require_node,
)


def test_without_node_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(main, [str(tmp_path / "site")])
    assert (result.exit_code, result.stdout) == (1, "")
    said = result.stderr
    assert len(said.splitlines()) == 1
    assert all(fact in said for fact in ("node", "install", "18", "npm"))
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("words", "said"), [(["-p"], "-p"), (["--port", "8000"], "'--port'"), (["one", "two"], "argument (two)")]
)
def test_what_it_does_not_know_is_refused_and_makes_no_folder(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert said in result.output
    assert "--help" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder_for_the_site(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    result = CliRunner().invoke(main, [str(tmp_path / "mine.txt")])
    assert (result.exit_code, "is a file" in result.output) == (2, True)


def test_the_help_says_what_is_built_and_what_it_needs() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert all(fact in result.output for fact in ("FOLDER", "Node.js", "TRAINING_PUZZLES_FOLDERS", "NUMPY_WHEEL"))


@pytest.mark.parametrize("has_numpy", [True, False])
def test_a_site_without_numpy_is_said_to_lack_it(
    has_numpy: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def build(folder: Path, work: Path, numpy: str, archive: Path | None) -> Site:
        asked.append(numpy)
        return Site(9_000_000, "numpy-2.whl", has_numpy)

    monkeypatch.setattr("puzzles.page.__main__.build", build)
    said = [CliRunner().invoke(main, [str(tmp_path)], env={"NUMPY_WHEEL": folder}).output for folder in ("", "wheels")]
    assert asked == [RELEASE, "wheels"]
    assert all(("numpy-2.whl" in one and "NUMPY_WHEEL=FOLDER" in one) != has_numpy for one in said)
    assert all("9.0 MB" in one for one in said)


def test_an_old_node_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.shutil, "which", lambda program: f"/bin/{program}")
    monkeypatch.setattr(build, "run", lambda *command: "v16.20.0\n")
    with pytest.raises(SiteError, match=r"newer node than v16\.20\.0"):
        require_node()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SiteError, match="not of a site"):
        prepare(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_site_is_built_anew_but_its_documentation_stays(tmp_path: Path) -> None:
    prepare(tmp_path / "site")
    (tmp_path / "site" / "old.js").write_text("")
    (tmp_path / "site" / DOCS).mkdir()
    prepare(tmp_path / "site")
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == sorted([MARK, DOCS])


def test_a_failed_program_is_quoted() -> None:
    with pytest.raises(SiteError, match="no such thing"):
        build.run("sh", "-c", "echo no such thing >&2; exit 3")


@pytest.mark.slow
def test_the_archive_has_the_game_and_what_draws_and_no_solutions() -> None:
    names = {name for name, _ in files() if not name.startswith(WITH_NUMPY)}
    wanted = ("lib/ledger/runner.py", "drawing/web/viewer.html", "puzzles/page/in_browser/api.py",
              "chalk/__init__.py", "jinja2/tests.py", "PIL/Image.py")  # fmt: skip
    assert set(wanted) <= names
    assert any(name.startswith("chalk_diagrams-") and name.endswith("/METADATA") for name in names)
    assert not [name for name in names if name.startswith(("solutions", "numpy", "puzzles/cli"))]


JUDGES = """
import asyncio, json, sys
from pathlib import Path

class NotHere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("click", "rich", "markdown_it", "numpy", "greenlet", "scipy"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        if name.startswith(("lib.layout", "lib.engine", "drawing.layout_", "puzzles.cli")):
            raise ModuleNotFoundError(f"{name} is not in the archive", name=name)

sys.meta_path.insert(0, NotHere())
from puzzles.page.in_browser import api, player

async def asked(module, name, *given):
    return json.loads(await module.answer(name, json.dumps(given)))["value"]

async def main():
    for slug, file in (("gpipe", "gpipe"), ("mixtral_64", "plan/mixtral_64")):
        record = await asked(player, "run", slug, Path(f"solutions/{file}.py").read_text(encoding="utf-8"))
        verdict = await asked(api, "judge", slug, record)
        await asked(api, "view", "layer")
        print(slug, verdict["status"], (await asked(api, "picture", "layer", False))[:4])

asyncio.run(main())
"""


@pytest.mark.slow
def test_judging_and_drawing_need_nothing_that_a_browser_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", JUDGES], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.stderr) == (["gpipe passed <svg", "mixtral_64 passed <svg"], "")


def test_licences_name_every_package(tmp_path: Path) -> None:
    folder = tmp_path / "gifenc"
    folder.mkdir()
    (folder / "package.json").write_text('{"name": "gifenc", "version": "1.0.3", "license": "MIT"}')
    (folder / "LICENSE.md").write_text("The MIT License of gifenc")
    text = licences(tmp_path, ["gifenc"], PACKAGES)
    assert "gifenc 1.0.3: MIT" in text
    assert "MIT License of gifenc" in text
    assert all(f"{name} " in text for name in PACKAGES)


def test_scripts_are_short_and_say_their_idea_first() -> None:
    for path in PAGE.glob("*.js"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("// "), path.name
        assert len(lines) <= 300, path.name


def policy_of(name: str) -> dict[str, list[str]]:
    """The policy of one of our documents, by directive."""
    found = re.search(r'Content-Security-Policy" content="([^"]+)"', (PAGE / name).read_text(encoding="utf-8"))
    assert found is not None
    return {words[0]: words[1:] for words in map(str.split, found[1].split(";"))}


def test_the_policies_allow_no_evaluation_and_the_frame_fetches_nothing() -> None:
    page, frame = policy_of("index.html"), policy_of("frame.html")
    for policy in (page, frame):
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == ["'none'"]
        assert {"'unsafe-eval'", "'unsafe-inline'", "*"}.isdisjoint(policy["script-src"])
    assert page["frame-src"] == page["connect-src"] == ["'self'"]
    assert set(frame) == {"default-src", "script-src", "worker-src", "form-action", "base-uri"}
    assert "'self'" not in {*frame["script-src"], *frame["worker-src"]}


def test_the_offline_worker_has_a_digest_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1")
    digest = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    assert f'const DIGESTS = {{"a.js": "{digest}"}};' in offline_worker(tmp_path, ["a.js"])
