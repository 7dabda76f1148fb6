"""Records a command in a terminal as an animated SVG: `python docs/images/record.py`.

The command runs in a tmux pane of its own, 120 columns by 32 lines; what the pane shows is taken
four times per second, with its colours, until the command has ended. Nothing is retouched.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rich.ansi import AnsiDecoder
from rich.color_triplet import ColorTriplet
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "surreal-like train configs/cartpole_dqn.yaml"
FILE = ROOT / "docs" / "images" / "live_table.svg"
COLUMNS, LINES = 120, 32
INTERVAL_SECONDS = 0.25
# Time at the end to read how it came out, before it begins again.
LAST_SECONDS = 6.0
LIMIT_SECONDS = 240.0
_CELL_WIDTH, _LINE_HEIGHT, _MARGIN, _FONT_SIZE = 8.0, 18.0, 14.0, 13.3
_PROMPT = "$ "
THEME = TerminalTheme(
    (22, 27, 34),
    (214, 220, 228),
    [
        (72, 79, 88),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (177, 186, 196),
    ],
)


@dataclass(frozen=True)
class Frame:
    """What the terminal showed from a moment on, in seconds, with its escape sequences."""

    seconds: float
    lines: tuple[str, ...]


class Pane:
    """A terminal without a screen, with a shell in it; `with` ends it."""

    def __init__(self, columns: int, lines: int, folder: Path) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="record-")
        # The command is the one of the environment that this script runs in.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        shell = ["env", f"PATH={path}", f"PS1={_PROMPT}", "bash", "--norc", "--noprofile"]
        size = ["-x", str(columns), "-y", str(lines)]
        self._tmux("new-session", "-d", *size, "-c", str(folder), shlex.join(shell))

    def __enter__(self) -> Pane:
        return self

    def __exit__(self, *error: object) -> None:
        self._tmux("kill-server")
        self._place.cleanup()

    def type(self, text: str) -> None:
        """Types a line and presses Enter."""
        self._tmux("send-keys", "-l", text)
        self._tmux("send-keys", "Enter")

    def shown(self) -> tuple[str, ...]:
        """The lines on the screen, without empty ones at the end."""
        return tuple(self._tmux("capture-pane", "-e", "-p").rstrip("\n").split("\n"))

    def _tmux(self, *words: str) -> str:
        socket = str(Path(self._place.name) / "tmux")
        line = ["tmux", "-S", socket, "-f", "/dev/null", *words]
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=20).stdout


def record(command: str, folder: Path, columns: int, lines: int) -> list[Frame]:
    """What a terminal shows from the moment at which a command is typed until it has ended."""
    frames: list[Frame] = []
    with Pane(columns, lines, folder) as pane:
        _wait_for(pane, _PROMPT.strip())
        pane.type("clear")
        began = time.monotonic()
        pane.type(command)
        while (now := time.monotonic() - began) < LIMIT_SECONDS:
            shown = pane.shown()
            if not frames or shown != frames[-1].lines:
                frames.append(Frame(now, shown))
            plain = [Text.from_ansi(line).plain.strip() for line in shown]
            if len(plain) > 1 and plain[-1] == _PROMPT.strip():
                return frames
            time.sleep(INTERVAL_SECONDS)
    raise TimeoutError(f"{command} had not ended after {LIMIT_SECONDS:.0f} s")


def _wait_for(pane: Pane, text: str) -> None:
    deadline = time.monotonic() + 10.0
    while text not in "".join(pane.shown()):
        if time.monotonic() > deadline:
            raise TimeoutError("the shell of the pane shows no prompt")
        time.sleep(0.02)


def svg(frames: Sequence[Frame], columns: int, title: str) -> str:
    """The frames as one picture that moves by itself, in the time that it took."""
    # Lines that nothing was ever written on are left out.
    lines = max(len(frame.lines) for frame in frames)
    width = columns * _CELL_WIDTH + 2 * _MARGIN
    height = lines * _LINE_HEIGHT + 2 * _MARGIN
    total = frames[-1].seconds + LAST_SECONDS
    known: dict[str, int] = {}
    groups = [_group(i, frame, known) for i, frame in enumerate(frames)]
    style = [
        f"text{{font:{_FONT_SIZE}px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "white-space:pre}",
        f".f{{visibility:hidden;animation:{total:.2f}s step-end infinite}}",
        *_moments(frames, total),
        "@media(prefers-reduced-motion){.f{animation:none}}",
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}">',
            f"<title>{escape(title)}</title>",
            "<style>" + "\n".join(style) + "</style>",
            f'<rect width="100%" height="100%" rx="8" fill="{THEME.background_color.hex}"/>',
            f'<g fill="{THEME.foreground_color.hex}">',
            "<defs>",
            *(f'<g id="l{number}">{line}</g>' for line, number in known.items()),
            "</defs>",
            *groups,
            "</g></svg>\n",
        ]
    )


def _moments(frames: Sequence[Frame], total: float) -> Iterator[str]:
    """When each frame is seen."""
    ends = [frame.seconds for frame in frames[1:]] + [total]
    for i, (frame, end) in enumerate(zip(frames, ends, strict=True)):
        first, last = 100 * frame.seconds / total if i else 0.0, 100 * end / total
        steps = "0%{visibility:hidden}" if first else ""
        steps += f"{first:.3f}%{{visibility:visible}}"
        steps += f"{last:.3f}%{{visibility:hidden}}" if last < 100 else ""
        # Where animations do not run, the last frame is seen.
        still = "visibility:visible;" if frame is frames[-1] else ""
        yield f"#f{i}{{{still}animation-name:k{i}}}@keyframes k{i}{{{steps}}}"


def _group(number: int, frame: Frame, known: dict[str, int]) -> str:
    """A frame: each of its lines is drawn once in the file and used wherever it is seen again."""
    uses = []
    decoder = AnsiDecoder()  # one for all lines: tmux goes on with the colours of the line above
    for row, line in enumerate(frame.lines):
        drawn = "".join(_drawn(decoder.decode_line(line)))
        if drawn:
            index = known.setdefault(drawn, len(known))
            y = _MARGIN + (row + 0.75) * _LINE_HEIGHT
            uses.append(f'<use href="#l{index}" x="{_MARGIN:.0f}" y="{y:.1f}"/>')
    return f'<g class="f" id="f{number}">{"".join(uses)}</g>'


def _drawn(line: Text) -> Iterator[str]:
    """The runs of one colour of a line, each at its column."""
    console = Console(width=1000, color_system="truecolor", force_terminal=True)
    column = 0
    for segment in line.render(console):
        text, style = segment.text, segment.style or Style()
        if text.strip():
            length = len(text) * _CELL_WIDTH
            yield (
                f'<text x="{column * _CELL_WIDTH:.0f}" textLength="{length:.0f}" '
                f'lengthAdjust="spacingAndGlyphs"{_attributes(style)}>{escape(text)}</text>'
            )
        column += len(text)


def _attributes(style: Style) -> str:
    colour = style.color.get_truecolor(THEME) if style.color else THEME.foreground_color
    if style.dim:
        colour = ColorTriplet(
            *(
                round(0.55 * a + 0.45 * b)
                for a, b in zip(colour, THEME.background_color, strict=True)
            )
        )
    # An attribute, not a rule of the style sheet: that would win over every one of these.
    fill = f' fill="{colour.hex}"' if colour != THEME.foreground_color else ""
    return fill + (' font-weight="bold"' if style.bold else "")


def main() -> None:
    """Records the command and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("command", nargs="?", default=COMMAND)
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "configs").symlink_to(ROOT / "configs")
        frames = record(given.command, Path(folder), COLUMNS, LINES)
    given.out.write_text(svg(frames, COLUMNS, given.command))


if __name__ == "__main__":
    main()
