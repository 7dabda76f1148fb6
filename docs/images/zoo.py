"""Films one episode of each trained policy whose environment draws itself, small, for docs/zoo.md.

python docs/images/zoo.py [NAME...]

Each is what `surreal-like play NAME --trained --video NAME.gif` writes, with fewer and smaller
pictures in few colours.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageSequence

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "images" / "zoo"
# As a script, this file has only its own folder on the path.
sys.path += [path for path in (str(ROOT),) if path not in sys.path]

from session.errors import MissingExtra, UsageError  # noqa: E402
from surreal_like.addons.analysis.play import play  # noqa: E402
from surreal_like.experiment.trained import list_trained  # noqa: E402

SEED, FRAMES, WIDTH, COLOURS = 20_261_130, 50, 160, 16


def film(name: str, folder: Path = FOLDER) -> Path | None:
    """Films an episode of a trained policy; returns the file, None where nothing can be drawn."""
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole.gif"
        try:
            play(f"trained:{name}", episodes=1, video=whole, seed=SEED)
        except MissingExtra:
            raise
        except UsageError:
            return None
        with Image.open(whole) as pictures:
            frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(pictures)]
            milliseconds = int(pictures.info.get("duration", 50))
    every = -(-len(frames) // FRAMES)
    small = [_small(frame) for frame in frames[::every]]
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.gif"
    duration = min(200, milliseconds * every)
    small[0].save(path, save_all=True, append_images=small[1:], duration=duration, loop=0)
    return path


def _small(frame: Image.Image) -> Image.Image:
    height = round(frame.height * WIDTH / frame.width)
    return frame.resize((WIDTH, height), Image.Resampling.LANCZOS).quantize(COLOURS)


if __name__ == "__main__":
    for each in sys.argv[1:] or list_trained():
        film(each)
