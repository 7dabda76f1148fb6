"""The documentation site: `make docs` builds it, strictly; it is searched, and fits a phone."""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import surreal_like
from docs.images import record
from session.config import Config
from tests.browser import browser, keep
from tests.docs.examples import ROOT, blocks

DOCS = ROOT / "docs"
PHONE_WIDTH = 390


def test_navigation_has_each_page_once() -> None:
    trees = [block.text for block in blocks(DOCS / "index.md") if block.language == "toctree"]
    listed = re.findall(r"^(?:\w+ <)?(\w+)>?$", "\n".join(trees), re.MULTILINE)
    pages = [path.stem for path in DOCS.iterdir() if path.suffix in (".md", ".rst")]
    assert sorted([*listed, "index"]) == sorted(pages)


def public_names() -> Iterator[str]:
    """Yield the public names but the default configs, which `configuration.md` lists."""
    for name in surreal_like.__all__:
        if not isinstance(getattr(surreal_like, name), Config):
            yield name


def test_reference_has_each_public_name_once() -> None:
    text = (DOCS / "api.rst").read_text()
    listed = re.findall(r"^\.\. auto\w+:: (\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(public_names())


def test_drawing_names_all_roles() -> None:
    drawn = set(re.findall(r">([^<]+)</text>", (DOCS / "images" / "roles.svg").read_text()))
    assert {"agents", "replay", "learner", "ps", "evaluators"} <= drawn
    assert {"experience", "acks", "batches", "priorities", "parameters", "scores"} <= drawn


MADE = record.svg([record.Frame(0.0, ("$ first",)), record.Frame(1.0, ("last",))], 20, "made")


@pytest.mark.parametrize("text", [record.FILE.read_text(), MADE], ids=["kept", "made"])
def test_recording_shows_its_end_where_animations_do_not_run(text: str) -> None:
    frames = dict(re.findall(r'<g class="f" id="(f\d+)">(.*?)</g>', text))
    assert ".f{visibility:hidden;" in text
    *others, last = frames
    assert others
    assert re.findall(r"#(f\d+)\{visibility:visible", text) == [last]
    drawn = dict(re.findall(r'<g id="(l\d+)">(.*?)</g>', text))
    words = [drawn[line] for line in re.findall(r'href="#(l\d+)"', frames[last])]
    assert any(re.search(r">(last|.*solved.*)</text>", each) for each in words)


def test_front_page_lists_each_shipped_experiment() -> None:
    text = (DOCS / "index.md").read_text().partition("\n## The shipped experiments\n")[2]
    listed = re.findall(r"`(\w+)\.yaml`", text.partition("\n```")[0])
    assert sorted(listed) == sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


def count_words(pages: Iterable[Path]) -> int:
    """Count what has a letter or a digit; the bars of tables have none."""
    return sum(
        re.search(r"\w", word) is not None for page in pages for word in page.read_text().split()
    )


def test_the_documents_stay_short() -> None:
    assert count_words([ROOT / "README.md", *DOCS.glob("*.md")]) <= 70_000
    assert count_words([DOCS / "performance.md"]) <= 2_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    pytest.importorskip("sphinx", reason="needs the extra docs")
    pytest.importorskip("furo", reason="needs the extra docs")
    made = tmp_path_factory.mktemp("site")
    words = re.search(r"sphinx-build (.*) docs site$", (ROOT / "Makefile").read_text(), re.M)
    assert words is not None
    done = build(*words[1].split(), DOCS, made)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return made


def build(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run Sphinx, as the line of the Makefile does."""
    command = [sys.executable, "-m", "sphinx", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_reference_shows_docstrings(site: Path) -> None:
    text = (site / "api.html").read_text()
    found = set(re.findall(r'id="(surreal_like\.[\w.]+)"', text))
    assert {f"surreal_like.{name}" for name in public_names()} <= found
    assert "surreal_like.loss.returns.lambda_returns" in found
    assert "surreal_like.Learner.update_tensorplex" in found
    assert "Follows an online network" in text


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_link_that_leads_nowhere_is_an_error(tmp_path: Path, site: Path) -> None:
    links = ["page.md", "index.md#chapter", "#chapter", "../gone.md"]
    paragraphs = "\n\n".join(f"[there]({link})" for link in links)
    (tmp_path / "index.md").write_text(f"# Page\n\n{paragraphs}\n")
    done = build("-q", "-W", "--keep-going", "-c", DOCS, tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert done.stderr.count("WARNING: ") == len(links)


@pytest.mark.slow
@pytest.mark.chromium
@pytest.mark.timeout(300)
def test_site_is_searched_and_fits_a_phone(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path, width=1280, height=900) as page:
        page.open((site / "search.html").as_uri() + "?q=TargetNetwork")
        page.wait("document.querySelector('#search-results a[href*=\"TargetNetwork\"]') != null")
        page.open((site / "index.html").as_uri())
        page.wait("document.title.startsWith('surreal_like')")
        keep(page, "site.png")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=PHONE_WIDTH,
            height=844,
            deviceScaleFactor=1,
            mobile=True,
        )
        for name in sorted(path.name for path in site.glob("*.html")):
            page.open((site / name).as_uri())
            page.wait(f"location.href.endsWith('{name}') && document.readyState == 'complete'")
            assert page.run("document.documentElement.scrollWidth") <= PHONE_WIDTH, name
        assert [url for url in page.requested if url.startswith("http")] == []
