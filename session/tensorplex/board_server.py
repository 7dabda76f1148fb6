"""TensorBoard's own program, whose pages only answer for the names of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from session.wire.endpoint import is_own_host

Answer = Callable[[str, list[tuple[str, str]]], object]
Application = Callable[[dict[str, Any], Answer], Iterable[bytes]]


def guard(pages: Application) -> Application:
    """Returns pages that refuse requests whose Host is the name of another machine."""

    def answer(environ: dict[str, Any], start: Answer) -> Iterable[bytes]:
        if is_own_host(environ.get("HTTP_HOST", "")):
            return pages(environ, start)
        start("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"the Host of the request is no name of this machine\n"]

    return answer


def main() -> None:
    """Runs TensorBoard with the options of its command line."""
    # Only this program needs all of its plugins, which warn when they are imported.
    from absl import app
    from tensorboard import default, main_lib, program

    main_lib.global_init()
    board = program.TensorBoard(
        plugins=default.get_plugins(),
        server_class=lambda pages, flags: program.WerkzeugServer(guard(pages), flags),
    )
    app.run(board.main, flags_parser=board.configure)


if __name__ == "__main__":
    main()
