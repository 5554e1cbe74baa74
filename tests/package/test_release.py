"""`make release` refuses what is not ready, and the package's description has links that work elsewhere."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from puzzles.package import release
from puzzles.package.hooks import absolute
from puzzles.package.release import VERSIONED, ReleaseError, require_ready, write_version

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the files that a release changes."""
    for name in ("CHANGELOG.md", *(file for file, _ in VERSIONED)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\nNews.\n\n## 0.1.0 (2026-01-02)\n", encoding="utf-8")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_the_version_is_written_everywhere_and_the_changelog_dated(repository: Path) -> None:
    write_version("12.3.4", require_ready("12.3.4", repository), repository)
    changelog = (repository / "CHANGELOG.md").read_text()
    assert re.search(r"^## 12\.3\.4 \(\d{4}-\d\d-\d\d\)\n\nNews", changelog, re.MULTILINE)
    for name, _ in VERSIONED:
        assert "12.3.4" in (repository / name).read_text()


COMMIT = "git -c user.name=t -c user.email=t@t commit -qam x"


@pytest.mark.parametrize(
    ("version", "change", "why"),
    [
        *((version, "true", r"VERSION=1\.2\.3") for version in ("", "1.2", "v1.2.3", "1.2.3.dev1")),
        ("0.0.1", "true", r"0\.0\.1 is older"),
        ("12.3.4", "echo x > README.md", "uncommitted changes"),
        ("12.3.4", "git tag v12.3.4", r"the tag v12\.3\.4 exists"),
        ("12.3.4", f"printf '## Unreleased\n\n## 0.1.0\n' > CHANGELOG.md && {COMMIT}", "nothing under '## Unreleased'"),
    ],
)
def test_what_is_not_ready_is_refused(version: str, change: str, why: str, repository: Path) -> None:
    subprocess.run(change, cwd=repository, shell=True, check=True)
    with pytest.raises(ReleaseError, match=why):
        require_ready(version, repository)


def test_a_step_that_fails_ends_the_release() -> None:
    with pytest.raises(ReleaseError, match="nothing was released: false"):
        release.run("false")


def test_links_of_the_description_are_absolute_or_gone() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    published = absolute(text, "https://github.com/acme/x")
    relative = r"\]\((?!https?://|#)"
    assert re.search(relative, text)
    assert "![GPipe" in published
    assert "](https://github.com/acme/x/raw/main/docs/pictures/gpipe.svg)" in published
    assert "](https://github.com/acme/x/blob/main/docs/play.md)" in published
    for made in (published, absolute(text, None)):
        assert not re.search(relative, made)
