"""Tests, modules and pages that a page names are there."""

import re
from pathlib import Path

import pytest

from muster import client
from muster.core.errors import MusterError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SECURITY = ROOT / "docs" / "security.md"
SOURCES = ("", "src/muster", "src/muster/agent", "tests")
"""The folders to which paths of modules are relative."""

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)\)")
MODULE = re.compile(r"[\w/]+\.py")
TEST = re.compile(r"test_\w+")
NAMES_IN = re.compile(r"((?:`[\w.]+` and )?`[\w.]+`) in `([\w/]+\.py)`")
MODULE_WITH = re.compile(r"`(\w+/[\w/]+\.py)` \(((?:[^()]|\([^()]*\))*)\)")
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")


@pytest.fixture(scope="module")
def tests() -> set[str]:
    """The names of all test functions."""
    named = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in named.findall(file.read_text())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_everything_that_a_page_names_is_there(page: Path, tests: set[str]) -> None:
    text = page.read_text()
    missing = [name for name in LINK.findall(text) if not is_elsewhere(name, page)]
    for name in CODE.findall(text):
        if name.startswith("tests/"):
            if not (ROOT / name).exists():
                missing.append(name)
        elif MODULE.fullmatch(name) and "/" in name:
            if not any((ROOT / below / name).is_file() for below in SOURCES):
                missing.append(name)
        elif TEST.fullmatch(name) and name not in tests:
            missing.append(name)
    assert missing == []


def test_module_has_the_names_that_a_page_says_are_in_it() -> None:
    """A page says so by "`name` in `module.py`", or by "`module.py` (`name`)"."""
    said: set[tuple[str, str]] = set()
    for page in PAGES:
        text = page.read_text()
        said |= {(path, n) for names, path in NAMES_IN.findall(text) for n in NAME.findall(names)}
        said |= {
            (path, n) for path, after in MODULE_WITH.findall(text) for n in NAME.findall(after)
        }
    assert len(said) > 40
    sources = {path: module(path).read_text() for path, _ in said}
    assert {
        (path, name)
        for path, name in said
        for word in name.split(".")
        if not re.search(rf"\b{word}\b", sources[path])
    } == set()


def module(path: str) -> Path:
    """The module that a page means by a path."""
    return next(file for below in SOURCES if (file := ROOT / below / path).is_file())


def is_elsewhere(link: str, page: Path) -> bool:
    """Whether a link leads to the web, or to a file that is there."""
    return link.startswith("https://") or (page.parent / link).exists()


def test_every_boundary_and_every_class_of_attack_has_a_test() -> None:
    lines = SECURITY.read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.endswith("| test |")]
    assert len(rows) > 40
    assert [row for row in rows if not TEST.search(row.split(" | ")[-1])] == []


CITED = re.compile(r"[\s`]\((design|source): ([^()]+)\)")
WRAPPED = re.compile(r"\s*\n\s*(?:#|//)?\s*")
ELSEWHERE = re.compile(
    r"DESIGN(?!ATED)|\brules? \d|\bsection \d|sokovan-|iris-task|iris-auto|gpu-recov"
)
"""Citations of documents that are not in the repository."""


def cited_files() -> list[Path]:
    folders = [("src/muster", "*.py"), ("src/muster", "*.proto"), ("tests", "*.py")]
    folders += [("proving", "*.py"), ("benchmarks", "*.py"), ("scripts", "*.py"), ("docs", "*.md")]
    files = [path for folder, kind in folders for path in (ROOT / folder).rglob(kind)]
    return [*files, ROOT / "README.md", ROOT / "pyproject.toml"]


def names_of(page: str) -> set[str]:
    """The names of a page's headings of the third level."""
    return set(re.findall(r"^### (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE))


def test_every_rule_and_source_that_is_cited_is_a_heading() -> None:
    names = {"design": names_of("design.md"), "source": names_of("references.md")}
    found: set[tuple[str, str]] = set()
    for path in cited_files():
        found |= set(CITED.findall(WRAPPED.sub(" ", path.read_text())))
    assert len(found) > 40
    assert {(page, name) for page, name in found if name not in names[page]} == set()


def test_nothing_is_cited_that_is_not_in_the_repository() -> None:
    own = Path(__file__)
    cited = {path: ELSEWHERE.findall(path.read_text()) for path in cited_files() if path != own}
    assert {str(path): names for path, names in cited.items() if names} == {}


def test_every_error_of_the_client_is_on_its_page() -> None:
    errors = {
        name
        for name in client.__all__
        if isinstance(each := getattr(client, name), type) and issubclass(each, MusterError)
    }
    page = (ROOT / "docs" / "python.md").read_text()
    assert len(errors) > 10
    assert {name for name in errors if f"`{name}`" not in page} == set()
