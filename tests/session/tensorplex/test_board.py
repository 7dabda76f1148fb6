"""TensorBoard as a component: it shows the run folder and leaves nothing behind."""

import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from session.errors import UsageError
from session.tensorplex.board import Board
from session.tensorplex.board_server import guard
from session.tensorplex.sinks.sink import ShownRun
from session.tensorplex.sinks.tensorboard import TensorBoard
from tests.browser import browser
from tests.polling import until
from tests.session.made_run import STARTED, made_events
from tests.session.tensorplex.rig import Rig
from tests.session.tensorplex.test_prometheus import FOREIGN, OWN, request

# Titles of the charts of the first section, which are in shadow trees.
CARDS = """(() => {
  const texts = [], walk = node => {
    if (node.nodeType === 3) texts.push(node.textContent.trim());
    for (const each of [...(node.shadowRoot?.childNodes ?? []), ...node.childNodes]) walk(each);
  };
  if (document.body) walk(document.body);
  const titles = ["return/greedy", "return/train", "steps per second", "lag"];
  const found = texts.filter(text => titles.includes(text)).slice(0, 4);
  return found.length === 4 && found;
})()"""
SESSION = {"tensorplex": {"start_tensorboard": True}}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, **SESSION)
    yield rig
    rig.close()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/environment", timeout=5) as page:
            return b"tensorboard" in page.read()
    except (urllib.error.URLError, OSError):
        return False


def test_address_is_an_event_and_the_program_ends_with_the_service(rig: Rig) -> None:
    context = rig.context("tensorboard")
    board = Board(context)
    process = psutil.Process(board._process.pid)
    [record] = [record for record, _ in context._channels["loggerplex"]._records]
    board.drain()
    rig.clock.seconds += 1
    assert board.done
    board.close()
    assert not process.is_running()
    assert (record["event"], record["detail"]) == (
        "tensorboard",
        f"http://127.0.0.1:{board.port}/#custom_scalars",
    )


def test_program_that_ended_is_started_again_after_a_while(rig: Rig) -> None:
    board = Board(rig.context("tensorboard"))
    first = board._process
    first.kill()
    first.wait()
    rig.clock.seconds += 29
    board.tick()
    assert board._process is first
    rig.clock.seconds += 2
    board.tick()
    assert board._process is not first
    board.close()


def test_two_boards_have_two_ports(rig: Rig) -> None:
    import socket

    board = Board(rig.context("tensorboard"))
    with socket.create_server(("127.0.0.1", board.port)):
        other = Board(rig.context("tensorboard"))
    board.close()
    other.close()
    assert board.port != other.port


def test_whenever_it_ends_nothing_stays(rig: Rig) -> None:
    board = Board(rig.context("tensorboard"))
    # It has temporary files for a moment while it starts; whoever is killed then leaves them.
    temporary = Path(psutil.Process(board._process.pid).environ()["TMPDIR"])
    (temporary / "left").mkdir()
    board._process.kill()
    board._process.wait()
    board.close()
    assert list(rig.folder.tensorboard.iterdir()) == []


def test_without_a_folder_it_does_not_start(rig: Rig) -> None:
    with pytest.raises(UsageError, match="start it with --folder"):
        Board(rig.context("tensorboard", folder=False))


def test_pages_answer_only_for_names_of_this_machine() -> None:
    began: list[str] = []
    pages = guard(lambda environ, start: [b"curves"])
    for host in (*OWN, *FOREIGN):
        answer = pages({"HTTP_HOST": host}, lambda status, headers: began.append(status))
        assert (answer == [b"curves"]) == (host in OWN)
    assert began == ["403 Forbidden"] * len(FOREIGN)
    assert pages({}, lambda status, headers: began.append(status)) != [b"curves"]


def test_the_program_of_a_run_is_guarded(rig: Rig) -> None:
    board = Board(rig.context("tensorboard"))
    try:
        assert "session.tensorplex.board_server" in psutil.Process(board._process.pid).cmdline()
    finally:
        board.close()


@pytest.mark.slow
def test_page_is_served_and_a_killed_component_leaves_no_program(rig: Rig) -> None:
    rig.folder.tensorboard.mkdir()
    context = rig.context("tensorboard")
    reader, writer = os.pipe()
    component = os.fork()
    if component == 0:
        board = Board(context)
        os.write(writer, f"{board.port} {board._process.pid}\n".encode())
        signal.pause()
        os._exit(0)
    port, program = map(int, os.read(reader, 100).split())
    os.close(reader)
    os.close(writer)
    until(lambda: answers(port))
    environment = f"http://127.0.0.1:{port}/data/environment"
    assert b"403 " in request(environment, "evil.example")
    assert b"tensorboard" in request(environment, "localhost")
    children = [psutil.Process(program), *psutil.Process(program).children(recursive=True)]
    os.kill(component, signal.SIGKILL)
    os.waitpid(component, 0)
    until(lambda: not any(child.is_running() for child in children))


@pytest.mark.slow
@pytest.mark.chromium
def test_curves_are_seen_in_a_browser_and_nothing_is_fetched_from_elsewhere(
    rig: Rig, tmp_path: Path
) -> None:
    run = ShownRun(rig.folder, rig.config, STARTED)
    for file in TensorBoard(run).files:
        file.flush()
    for title in ("return/greedy", "return/train", "lag/mean_versions"):
        made_events(rig.folder, title, {0: 9.0, 100: 500.0})
    board = Board(rig.context("tensorboard"))
    try:
        until(lambda: answers(board.port))
        with browser(tmp_path) as page:
            page.open(f"http://127.0.0.1:{board.port}/")
            # The name of the curve, and below it the table of its newest point.
            for words in ("/greedy", "Smoothed"):
                page.wait(f"document.body && document.body.innerText.includes('{words}')")
            page.open("about:blank")
            page.open(f"http://127.0.0.1:{board.port}/#custom_scalars")
            shown = page.wait(CARDS)
            assert shown == ["return/greedy", "return/train", "steps per second", "lag"]
            assert page.outside() == []
    finally:
        board.close()
