"""The site that is built: its files, its map, its numpy, and solutions in links and files."""

import json
import re
import shutil
import string
import subprocess
import sys
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from puzzles import version
from puzzles.catalog.path import CORE
from puzzles.catalog.schedule import PUZZLES
from puzzles.cli.share import judge_saved
from puzzles.page import build
from puzzles.page.__main__ import main
from puzzles.page.build import (
    DOCS,
    MARK,
    PACKAGES,
    PAGE,
    RELEASE,
    WITH_NUMPY,
    LockedWheel,
    SiteError,
    files,
    licences,
    offline_worker,
    pack,
    prepare,
    require_node,
    wheel_of,
)
from puzzles.page.in_browser import calls
from puzzles.page.in_browser.calls import split
from puzzles.page.listing import listing
from puzzles.tracks import ALL
from tests.screens.texts import approved
from tests.support.commands import ROOT, puzzles
from tests.support.examples import LETTERS, examples
from tests.support.numpy_stand_in import write_wheel
from tests.support.pages import read_link

# --- Building the site: what is missing is named in a sentence, and other people's files stay. tests/browser builds
# it ---


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

    def build(folder: Path, work: Path, numpy: str, archive: Path | None) -> tuple[int, str]:
        asked.append(numpy)
        return 9_000_000, "" if has_numpy else "numpy-2.whl"

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


# --- Numpy's wheel for the site: taken by the name and the digest that Pyodide's lock file has, and refused
# otherwise ---


NAME = "numpy-2.4.6-cp314-cp314-pyemscripten_2026_0_wasm32.whl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the wheel."""
    (tmp_path / "wheels").mkdir()
    return write_wheel(tmp_path / "wheels" / NAME).parent


@pytest.fixture
def locked(tmp_path: Path, folder: Path) -> LockedWheel:
    """The entry of the wheel in the lock file of a Pyodide."""
    pyodide = tmp_path / "modules" / "pyodide"
    pyodide.mkdir(parents=True)
    digest = sha256((folder / NAME).read_bytes()).hexdigest()
    lock = {"packages": {"numpy": {"file_name": NAME, "sha256": digest, "imports": ["numpy"]}}}
    (pyodide / "pyodide-lock.json").write_text(json.dumps(lock))
    (pyodide / "package.json").write_text('{"version": "314.0.7"}')
    (pyodide / "pyodide.mjs").write_text("cdnUrl=k(e.packageBaseUrl??`https://example.org/pyodide/v${U}/full/`)")
    return LockedWheel.of(pyodide.parent)


def test_a_wheel_is_taken_by_name_and_digest(locked: LockedWheel, folder: Path) -> None:
    assert locked.given(folder) == folder / NAME


def test_a_missing_folder_is_refused(locked: LockedWheel, folder: Path) -> None:
    for path in (folder / "nowhere", folder / NAME):
        with pytest.raises(SiteError) as caught:
            locked.given(path)
        assert all(fact in str(caught.value) for fact in ("NUMPY_WHEEL names a folder", str(path), NAME))


def test_another_name_is_refused_and_both_are_said(locked: LockedWheel, folder: Path) -> None:
    (folder / NAME).rename(folder / "numpy-2.0.0-cp312-cp312-linux_x86_64.whl")
    with pytest.raises(SiteError, match=f"has no {NAME}; there is numpy-2.0.0"):
        locked.given(folder)
    (folder / "numpy-2.0.0-cp312-cp312-linux_x86_64.whl").unlink()
    with pytest.raises(SiteError, match=f"has no {NAME}; it is in"):
        locked.given(folder)


def test_another_digest_is_refused(locked: LockedWheel, folder: Path) -> None:
    (folder / NAME).write_bytes((folder / NAME).read_bytes() + b" ")
    with pytest.raises(SiteError, match=f"SHA-256 is .*Pyodide has {locked.digest}"):
        locked.given(folder)


class Release:
    """What stands in for the network: an answer, or none."""

    def __init__(self, data: bytes | None) -> None:
        self.data, self.asked = data, list[str]()

    def __call__(self, address: str, timeout: float) -> Any:
        self.asked.append(address)
        if self.data is None:
            raise OSError("no network")
        return BytesIO(self.data)


def test_without_a_folder_it_comes_from_the_release_once(
    locked: LockedWheel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Release((folder / NAME).read_bytes())
    monkeypatch.setattr(build, "urlopen", release)
    assert locked.released(tmp_path) == locked.released(tmp_path) == tmp_path / NAME
    assert release.asked == [f"https://example.org/pyodide/v314.0.7/full/{NAME}"]


def test_a_release_that_cannot_be_reached_leaves_numpy_out(
    locked: LockedWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "urlopen", Release(None))
    assert locked.released(tmp_path) is None
    monkeypatch.setattr(build, "urlopen", Release(b"a page of the hotel's network"))
    with pytest.raises(SiteError, match=r"example\.org.*is not the wheel"):
        locked.released(tmp_path)
    assert not (tmp_path / NAME).exists()


def test_an_address_that_is_named_has_to_answer(
    locked: LockedWheel, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "https://example.net/wheels/"
    monkeypatch.setattr(build, "urlopen", Release(None))
    with pytest.raises(SiteError, match=f"{place}{NAME} cannot be loaded"):
        wheel_of(locked, place, tmp_path)
    monkeypatch.setattr(build, "urlopen", Release(b"another wheel"))
    with pytest.raises(SiteError, match=r"example\.net.*is not the wheel"):
        wheel_of(locked, place, tmp_path)
    monkeypatch.setattr(build, "urlopen", Release((folder / NAME).read_bytes()))
    assert wheel_of(locked, place, tmp_path) == tmp_path / NAME


def test_a_site_is_packed_with_its_wheel_only(locked: LockedWheel, folder: Path, tmp_path: Path) -> None:
    site, target = tmp_path / "site", tmp_path / "training-puzzles-site.zip"
    (site / "python-1").mkdir(parents=True)
    for name in (MARK, "index.html"):
        (site / name).write_text("x")
    with pytest.raises(SiteError, match=f"has no {NAME}, and an archive"):
        pack(site, target, locked)
    wheel = site / "python-1" / NAME
    wheel.write_bytes(b"another wheel")
    with pytest.raises(SiteError, match="is not the wheel"):
        pack(site, target, locked)
    assert not target.exists()
    wheel.write_bytes((folder / NAME).read_bytes())
    pack(site, target, locked)
    with ZipFile(target) as packed:
        assert packed.namelist() == [f"training-puzzles-site/{name}" for name in ("index.html", f"python-1/{NAME}")]
        assert packed.read(packed.namelist()[1]) == wheel.read_bytes()


def test_a_pyodide_without_an_address_asks_for_a_folder(locked: LockedWheel) -> None:
    (locked.pyodide / "pyodide.mjs").write_text("")
    with pytest.raises(SiteError, match="NUMPY_WHEEL=FOLDER"):
        locked.address()


def test_its_licence_is_served(locked: LockedWheel, folder: Path) -> None:
    text = licences(locked.pyodide.parent, (), (), folder / NAME)
    assert f"{NAME}:\n\nThe licence of" in text


# --- Links to code and to runs: they give back what they hold ---


IN_LINKS = set(string.ascii_letters + string.digits + "-_")


@examples(15)
@given(st.text(LETTERS, max_size=300), st.sampled_from(("code", "run", "timetable")))
def test_a_link_gives_back_what_it_holds(text: str, kind: str) -> None:
    made = calls.link("https://example.org/#old", "gpipe", kind, text)
    assert made.startswith(f"https://example.org/#gpipe/{kind}/")
    assert set(made.rpartition("/")[2]) <= IN_LINKS
    assert read_link(made) == ("gpipe", kind, text)


# --- The command ---


def share(*arguments: str) -> tuple[int, str, str]:
    done = puzzles("share", *arguments)
    return done.exit_code, done.stdout, done.stderr


def test_the_command_shares_code_and_runs() -> None:
    file = ROOT / "solutions" / "zb_h1.py"
    code, printed, _ = share(str(file), "zb_h1", "--site", "https://example.org/")
    assert (code, read_link(printed.strip())) == (0, ("zb_h1", "code", file.read_text(encoding="utf-8")))
    code, printed, _ = share(str(file), "zb_h1", "--run", "--site", "https://example.org/")
    slug, kind, trace = read_link(printed.strip())
    assert (code, slug, kind) == (0, "zb_h1", "run")
    assert judge_saved(PUZZLES["zb_h1"], trace.encode()).stars == 3


def test_of_several_solutions_only_one_is_shared(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.py"
    file.write_text("from lib import Model\n\n\ndef both():\n    pass\n\n\ndef ddp(model):\n    both()\n\n\n"
                    "def fsdp(model):\n    both()\n")  # fmt: skip
    _, printed, _ = share(str(file), "fsdp", "--site", "x")
    text = read_link(printed.strip())[2]
    assert "def both" in text
    assert "def fsdp" in text
    assert "def ddp" not in text


def test_without_a_public_address_the_link_is_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_addresses", dict)
    code, printed, warned = share(str(ROOT / "solutions" / "ddp.py"), "ddp")
    assert (code, printed.startswith("http://127.0.0.1:8000/#ddp/code/")) == (0, True)
    approved("links", "without a public address the link is for this machine", warned)


def test_a_public_address_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_addresses", lambda: {"Play": "https://acme.github.io/x/"})
    code, printed, warned = share(str(ROOT / "solutions" / "ddp.py"), "ddp")
    assert (code, printed.startswith("https://acme.github.io/x/#ddp/code/"), warned) == (0, True, "")


@pytest.mark.parametrize(
    ("text", "slug", "more", "facts"),
    [
        ("x = 1\n", "ddp", [], ["has no ddp", "def ddp(model)"]),
        ("def ddp(model:\n", "ddp", [], ["line 1", "valid Python"]),
        ("def ddp(model):\n    pass\n", "ffn", [], ["no traces of ffn"]),
        ("async def ddp(model):\n    await model.receive()\n", "ddp", ["--run"], ["not correct", "receive"]),
    ],
)
def test_what_cannot_be_shared_is_one_clear_error(tmp_path, text, slug, more, facts) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.py"
    file.write_text(text)
    code, printed, said = share(str(file), slug, *more)
    assert (code != 0, printed) == (True, "")
    assert all(fact in said for fact in facts)


# --- A file with several solutions: the code for each puzzle is the file without the definitions of the others ---


SLUGS = ("ddp", "fsdp", "gpipe", "zb_h1")
CODES = {slug: (ROOT / "solutions" / f"{slug}.py").read_text(encoding="utf-8") for slug in SLUGS}

HEAD = '"""About all."""\n\nfrom lib import Model\n\n\ndef helper(x):  # with a comment\n    return x\n\n'
DDP = '@helper\n@helper\ndef ddp(model):\n    """\f\u2028"""\n    helper(model)\n'
FSDP = "async def fsdp(\n    model,\n):\n    helper(model)  # and one here\n"


@pytest.mark.parametrize("between", ["", "\n\n", "# about fsdp\n", "N = 1\n", "\f\n"])
@pytest.mark.parametrize("end", ["", "# the end", "\n\n# the end\n"])
def test_all_but_other_definitions_stays_byte_for_byte(between: str, end: str) -> None:
    parts = split(HEAD + DDP + between + FSDP + end)
    assert parts == {"ddp": HEAD + DDP + between + end, "fsdp": HEAD + between + FSDP + end}


def test_every_solution_comes_back_with_its_definition_only() -> None:
    parts = split("\n\n".join(CODES.values()))
    assert list(parts) == list(SLUGS)
    for slug, code in CODES.items():
        assert code[code.index(f"def {slug}(") :] in parts[slug] + "\n"
        assert sum(f"def {other}(" in parts[slug] for other in SLUGS) == 1


def test_a_file_with_one_solution_is_its_code() -> None:
    assert split(CODES["zb_h1"]) == {"zb_h1": CODES["zb_h1"]}


def test_two_statements_on_one_line_stay_together() -> None:
    text = "ddp = 1; fsdp = 2\n"
    assert split(text) == {"ddp": text, "fsdp": text}


# --- The page goes along the core path, as the game does, and leaves out what the site or the browser lacks ---


PLAYED = [slug for slug in CORE if not ALL[slug].page_needs]
"""Those of a site without numpy."""

STUBS = {
    "store.js": "let solved = []; export const stars = (slug) => (solved.includes(slug) ? 2 : 0); "
    "export const solve = (slugs) => { solved = slugs; };",
}
ASK = """
import { lacking } from "./needs.js";
import { firstOpen } from "./path.js";
import { solve } from "./store.js";
import { readFileSync } from "node:fs";
const { catalog, cases } = JSON.parse(readFileSync(0, "utf8"));
const all = Object.values(catalog.puzzles);
const lacks = (numpy, suspending) => {
  globalThis.WebAssembly = suspending ? { Suspending: class {} } : {};
  return Object.fromEntries(all.map((one) => [one.slug, lacking(one, numpy)]));
};
const said = { both: lacks({}, true), numpy: lacks({}, false), none: lacks(null, true) };
for (const one of all) one.played = !said.none[one.slug];
const next = cases.map(([solved, after]) => { solve(solved); return firstOpen(catalog, after).slug; });
console.log(JSON.stringify({ next, said }));
"""

CASES = [
    *[(PLAYED[:number], PLAYED[number - 1] if number else "", PLAYED[number]) for number in range(len(PLAYED))],
    (["gpipe"], "", "zero1"),  # what comes before gpipe is known
    (["zb_h2"], "zb_h2", "zb_v"),
    (PLAYED, "three_d", "wsdp"),
]


@pytest.mark.slow
def test_the_listing_has_the_path_and_each_puzzles_place() -> None:
    shown = listing()
    assert [slug for step in shown["path"] for slug in step["slugs"]] == list(CORE)
    assert shown["puzzles"]["fsdp"]["mark"] == "core"
    assert shown["puzzles"]["wsdp"]["place"] == "Optional; after: ddp"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the page's scripts say: the next puzzle of each case; why puzzles are not played, by what there is."""
    if not shutil.which("node"):
        pytest.skip("the page's scripts run in node here")
    tmp_path = tmp_path_factory.mktemp("page")
    for name, text in {**STUBS, "ask.mjs": ASK, "package.json": '{"type": "module"}'}.items():
        (tmp_path / name).write_text(text)
    for name in ("path.js", "needs.js"):
        shutil.copy(PAGE / name, tmp_path)
    given = json.dumps({"catalog": listing(), "cases": [case[:2] for case in CASES]})
    done = subprocess.run(["node", "ask.mjs"], cwd=tmp_path, input=given, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_page_names_the_next_puzzle(answers: Any) -> None:
    assert answers["next"] == [case[2] for case in CASES]


def test_what_is_lacking_is_said_of_each_puzzle_that_needs_it(answers: Any) -> None:
    tracks = {slug: track.name for slug, track in ALL.items()}
    assert not any(answers["said"]["both"].values())
    without_suspending, without_numpy = answers["said"]["numpy"], answers["said"]["none"]
    assert {tracks[slug] for slug, why in without_suspending.items() if why} == {"engine"}
    assert all(fact in without_suspending["FSDP"] for fact in ("wait for each other", "Chrome", "Edge", "137"))
    assert {tracks[slug] for slug, why in without_numpy.items() if why} == {"engine", "layout"}
    assert "site was built without" in without_numpy["matmul"]
