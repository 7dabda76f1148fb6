"""What the documents show works: their files and commands, in a folder of their own."""

import re
import shutil
from pathlib import Path

import pytest

from docs.generate import PAGES, with_example_files
from session.errors import ConfigError
from tests.docs.examples import CODE, ROOT, Block, Run, blocks, run_examples, write_files

EXAMPLES = ROOT / "examples"
DOCUMENTS = [ROOT / "README.md", *PAGES, EXAMPLES / "README.md"]
# Pages whose examples take more than four seconds; `make test-all` runs them.
LONG = {"dataflow", "multi_agent", "your_own_environment", "your_own_algorithm", "scripts"}
LONG |= {"environment_options", "tutorial_environment", "tutorial_algorithm"}
LONG |= {"callbacks", "algorithms", "troubleshooting", "using_results", "metrics"}
LONG |= {"actor_critic_on_unrolls", "resume_and_recovery", "recordings", "zoo", "launchers"}
LONG |= {"goals", "batched_environments"}
OTHERS = [ROOT / name for name in ("k8s/README.md", "benchmarks/README.md")]
LINKING = [*DOCUMENTS, *(page for page in ROOT.glob("*.md") if page not in DOCUMENTS), *OTHERS]


def with_examples(*, slow: bool) -> list[Path]:
    """The documents that have something to run."""
    return [
        document
        for document in DOCUMENTS
        if any(run.slow == slow for block in blocks(document) for run in block.runs)
    ]


def prepare(document: Path, folder: Path) -> None:
    """Pages that name a shipped config or example are read at the top of the repository."""
    for name in ("configs", "examples"):
        if f"{name}/" in document.read_text():
            shutil.copytree(ROOT / name, folder / name)
    write_files(document, folder)


def by_name(document: Path) -> str:
    return f"examples/{document.name}" if document.parent == EXAMPLES else document.name


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(each, marks=pytest.mark.slow) if each.stem in LONG else each
        for each in with_examples(slow=False)
    ],
    ids=by_name,
)
def test_examples_run(document: Path, tmp_path: Path) -> None:
    prepare(document, tmp_path)
    assert run_examples(document, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("document", with_examples(slow=True), ids=by_name)
def test_examples_reach_their_goal(document: Path, tmp_path: Path) -> None:
    prepare(document, tmp_path)
    assert run_examples(document, tmp_path, slow=True)


def test_the_pages_on_what_is_ones_own_are_run() -> None:
    names = {document.name for document in with_examples(slow=False)}
    own = {f"your_own_{what}.md" for what in ("algorithm", "environment", "replay")}
    own.add("actor_critic_on_unrolls.md")
    assert own <= names
    assert own <= {document.name for document in with_examples(slow=True)}


# Blocks that are not run, and why: document -> reasons. One that is missing here is an error.
SHOWN = {
    "examples/README.md": [
        "runs until it is ended; test_scripts.py starts the same",
        "tests/addons/gateway/runs/test_gateway.py runs both",
    ],
    "metrics.md": ["starts a server"],
    "recordings.md": [
        "needs a second checkout, in which Adam's second moment was changed from step 700 on",
        "tests/addons/recording/test_minari.py runs both, with the extra",
    ],
    "resume_and_recovery.md": ["needs a bucket"],
    "actor_critic_on_unrolls.md": ["two lines of a loss"],
    "README.md": [
        "fetches PyTorch",
        "opens a window",
        "fetches PyTorch",
        "fetches packages",
        "fetches packages",
        "these are the tests",
    ],
    "results.md": [
        "trains for ten minutes to half an hour",
        "trains for minutes to hours; needs the extras minigrid, robotics, box2d, mujoco and atari",
        "trains for a quarter of an hour, and installs a peer",
        "trains for half an hour; needs the extra atari",
        "trains for some minutes; needs the extra box2d",
        "trains for hours, and installs a peer",
        "trains for two hours; needs the extra minatar",
        "draws what was trained above",
        "trains for an hour",
    ],
    "batched_environments.md": ["needs the extra envpool", "brax was never installed here"],
    "gateway.md": ["tests/addons/gateway/runs/test_gateway.py runs it, beside a run"],
    "using_results.md": ["tests/addons/analysis/test_export.py runs it, without this package"],
    "troubleshooting.md": ["pdb waits for somebody who types"] * 2,
    "kubernetes.md": [
        *["test_objects.py reads it"] * 2,
        *["test_kubectl.py runs it"] * 4,
        "test_kustomize.py builds it",
        *["test_kubectl.py runs it"] * 2,
    ],
    "monitoring.md": [
        "tests/runs/test_prometheus.py runs it, with shorter times",
        "it needs the Prometheus Operator",
        "tests/runs/test_prometheus.py runs it, without kubectl",
    ],
    "your_own_environment.md": [
        "one line of a loss",
    ],
    "your_own_project.md": [
        "fetches packages",
        "tests/test_wheel.py builds it and works with it",
        "tests/test_wheel.py runs it",
    ],
    "several_machines.md": [
        "needs the token of a run in progress",
        "needs further hosts",
    ],
    "scripts.md": [
        "runs until it is ended; test_scripts.py starts the same",
        "the loop of learner.py, where test_scripts.py puts it",
    ],
    "your_own_client.md": ["tests/docs/test_your_own_client.py runs it, beside a gateway"] * 3,
    "zoo.md": ["opens a window"],
    "tune.md": [
        "test_tune_file.py reads files like it",
        "test_tune_pbt.py runs a smaller one",
        "test_tune_pbt.py runs it",
        "test_optuna_search.py covers the search",
        "test_tune.py runs it, after a tuning that was interrupted",
        "test_tune_workers.py runs it",
    ],
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=by_name)
def test_every_block_of_code_is_run_or_says_why_not(document: Path) -> None:
    found = list(blocks(document))
    unmarked = [block.text for block in found if block.language in CODE and not block.marked]
    assert not unmarked, f"put <!-- run --> or <!-- shown: REASON --> in front of {unmarked[0]}"
    assert [block.shown for block in found if block.shown] == SHOWN.get(by_name(document), [])


def example_files() -> list[str]:
    """Return the files of `examples/` that run."""
    found = [each for each in sorted(EXAMPLES.rglob("*.*")) if each.suffix in (".py", ".yaml")]
    return [str(each.relative_to(ROOT)) for each in found]


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_examples_in_a_page_are_the_files(page: Path) -> None:
    text = page.read_text()
    assert with_example_files(text) == text, "run: python docs/generate.py"


@pytest.mark.parametrize("example", example_files())
def test_an_example_is_short_and_a_page_shows_it(example: str) -> None:
    assert len((ROOT / example).read_text().splitlines()) <= 60
    assert any(f"<!-- generated: {example} -->" in page.read_text() for page in PAGES)


def anchors(document: Path) -> set[str]:
    """Return the anchors of the headings of a page, and of the one that it includes."""
    text = document.read_text()
    for included in re.findall(r"```\{include\} (\S+)", text):
        text += (document.parent / included).read_text()
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("document", LINKING, ids=by_name)
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", document.read_text()):
        page = document.parent / target if target else document
        assert page.exists(), f"{document.name} links to {target}"
        assert not anchor or anchor in anchors(page), f"{document.name} links to {target}#{anchor}"


SAMPLE = """
Text.

<!-- file: a.py -->
```python
x = 1
```

<!-- run add="--on serial a.b={c: 1, d: 2}" exit=3 -->
<!-- run slow -->
```console
$ surreal-like train 'a b'
what it prints
```

<!-- session: one -->
```console
$ true
```

<!-- shown: it has no end -->
```yaml
shown: only
```
"""


def test_comments_say_what_a_block_is(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(SAMPLE)
    first, second, third, fourth = blocks(document)
    assert first == Block("python", "x = 1\n", "a.py")
    assert second.runs == [Run(add=("--on", "serial", "a.b={c: 1, d: 2}"), exit_code=3), Run(True)]
    assert second.commands() == [["surreal-like", "train", "a b"]]
    assert third == Block("console", "$ true\n", session="one")
    assert fourth == Block("yaml", "shown: only\n", shown="it has no end")
    assert all(block.marked for block in (first, second, third, fourth))
    assert not Block("python", "x\n").marked
    assert write_files(document, tmp_path) == ["a.py"]
    assert (tmp_path / "a.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("text", ["<!-- run -->\nno block", "```python\nx", "<!-- run ext=1 -->"])
def test_a_comment_or_block_that_leads_nowhere_is_an_error(tmp_path: Path, text: str) -> None:
    document = tmp_path / "page.md"
    document.write_text(text)
    with pytest.raises(ValueError, match=r"page\.md|no ext"):
        list(blocks(document))


@pytest.mark.parametrize(("command", "works"), [("true", True), ("false", False)])
def test_a_command_that_fails_fails_the_test(tmp_path: Path, command: str, works: bool) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"<!-- run -->\n```console\n$ {command}\n```\n")
    if works:
        assert run_examples(document, tmp_path, slow=False) == 1
        return
    with pytest.raises(AssertionError, match="ended with 1"):
        run_examples(document, tmp_path, slow=False)


@pytest.mark.parametrize(
    ("text", "works"),
    [
        ("session_config: {agent: {num: 3}}", True),
        ("session_config: {agnet: {num: 3}}", False),
        ("session_config: {agent: {num: three}}", False),
    ],
)
def test_settings_that_a_document_shows_are_known(tmp_path: Path, text: str, works: bool) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"<!-- run -->\n```yaml\n{text}\n```\n")
    if works:
        assert run_examples(document, tmp_path, slow=False) == 1
        return
    with pytest.raises(ConfigError, match="agent"):
        run_examples(document, tmp_path, slow=False)
