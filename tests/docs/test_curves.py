"""The learning curves of the documents: each is there, and is what `plot` draws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from docs.images.curves import COLOURS, FOLDER, NAMES, ROOT, draw
from surreal_like.run.train import train


def test_the_pages_show_each_of_them_and_no_other() -> None:
    pages = (ROOT / "docs" / f"{name}.md" for name in ("results", "goals"))
    text = "".join(page.read_text() for page in pages)
    assert re.findall(r"\]\(images/(\w+)\.png\)", text) == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_picture_of_few_colours(name: str) -> None:
    with Image.open(FOLDER / f"{name}.png") as picture:
        assert picture.mode == "P"
        assert picture.width > picture.height > 300
    assert (FOLDER / f"{name}.png").stat().st_size < 60_000


@pytest.mark.slow
def test_runs_of_two_seeds_become_one_picture(tmp_path: Path) -> None:
    for seed in (1, 2):
        train(
            algorithm="dqn",
            env="gym:CartPole-v1",
            overrides={"session_config.stop": {"env_steps": 300, "eval_episodes": 2}},
            launcher="serial",
            folder=tmp_path / "runs" / "tried" / f"seed-{seed}",
            seed=seed,
        )
    path = draw(tmp_path / "runs", "tried", tmp_path)
    assert path == tmp_path / "tried.png"
    with Image.open(path) as picture:
        colours = picture.convert("RGB").getcolors(COLOURS)
    assert colours is not None
    assert len(colours) > 2
