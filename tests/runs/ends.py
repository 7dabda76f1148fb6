"""Starts and ends processes with large frames under way, and looks at how each has ended.

Scripts with a client, scripts that are a component, kernels of notebooks, and services, each ended
in several ways, send pictures to a Tensorplex of this process. The command ends with 1 if a process
has ended otherwise than expected (a signal is never expected) or said something, or if a picture is
missing or is not as it was sent.

    python tests/runs/ends.py [--ends 2000] [--at-once 2]
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# Of a program that is started by its path, only its own folder is there.
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import START_AGAIN
from session.folder import RunFolder
from session.launchers.launcher import write_run_files
from session.process.component import Component, Topology
from session.process.context import Context, Launch
from session.process.entry import make_frame, run_service
from session.process.heartbeat import State, read_beat
from session.process.script import ServiceThread
from session.process.service import Service
from session.tensorplex.metrics_server import Tensorplex
from session.wire import AddressBook
from tests.session.tensorplex.reading import read

FRAMES = 6
WIDTH = 640  # squared: 400 KiB, so no frame is copied
WAIT_SECONDS = 60.0

HEAD = f"""
import os, sys
import numpy as np
folder, agent, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def send(client, frames={FRAMES}):
    for step in range(number * {FRAMES}, number * {FRAMES} + frames):
        client.add_image("p", np.full(({WIDTH}, {WIDTH}), step % 251, np.uint8), step)
"""
CLIENT = """
from surreal_like import TensorplexClient
client = TensorplexClient(folder, f"script/{number % 150}")
send(client)
"""
COMPONENT = """
from session.folder import RunFolder
from session.process.script import script_context, this_is_agent
this_is_agent(agent)
context = script_context(RunFolder(folder).read_config().session_config, "agent")
send(context.tensorplex)
"""
# Way to end -> last lines of the script, exit code.
WAYS = {
    "returns": ("", 0),
    "exits": ("sys.exit(3)", 3),
    "closes": ("client.close() if 'client' in dir() else None", 0),
    "raises": ("sys.excepthook = lambda *error: None; raise RuntimeError", 1),
    "forks": ("child = os.fork()\nsys.exit(0) if child == 0 else os.waitpid(child, 0)", 0),
    "numpy last": ("import atexit; atexit.register(np.zeros, 1 << 20)", 0),
}


class Sends(Service):
    """Sends its pictures, and once more when it ends; ``number`` comes by the environment."""

    def __init__(self, context: Context, number: int, *, waits: bool) -> None:
        self._context = context
        self._number = number
        self._waits = waits
        self._sent = 0

    def tick(self) -> bool:
        self._send(FRAMES - 1)
        return False

    def _send(self, frames: int) -> None:
        for step in range(self._sent, frames):
            each = self._number * FRAMES + step
            picture = np.full((WIDTH, WIDTH), each % 251, np.uint8)
            self._context.tensorplex.add_image("p", picture, each)
        self._sent = max(self._sent, frames)

    def drain(self) -> None:
        self._waits = False

    @property
    def done(self) -> bool:
        return bool(self._sent) and not self._waits

    def close(self) -> None:
        self._send(FRAMES)


class Server:
    """A Tensorplex of this process, which knows a run's agents and scripts.

    Args:
        path: the run folder.
        agents: number of agents; each process is another one, since a sender has a bound on what it
            may send in the long run.
    """

    def __init__(self, path: Path, agents: int) -> None:
        self.folder = RunFolder(path)
        path.mkdir()
        plain = {"algorithm": "none", "env_config": {"env_name": "none"}}
        config = Config(plain).extend(BASE_CONFIG, strict=True)
        config.session_config.folder = str(path)
        config.dump_file(self.folder.config)
        endpoint = "tensorplex.records"
        binds = (endpoint, "tensorplex.requests")
        server = Component("tensorplex", "tensorplex", "main.tensorplex", binds=binds)
        components = [
            Component(f"agent-{n}", "agent", "main.agent", index=n, connects=(endpoint,))
            for n in range(agents)
        ]
        topology = Topology([server, *components])
        addresses = AddressBook.ipc(topology.endpoints, self.folder.sockets)
        write_run_files(self.folder, topology, addresses)
        launch = Launch(server, config, topology, addresses, self.folder)
        self._thread = ServiceThread(make_frame(launch, Tensorplex))

    def close(self) -> None:
        self._thread.frame.context.stopping = True
        self._thread.join()

    def pictures(self) -> Counter[int]:
        """Counts the stored pictures by number; those with wrong pixels count as number -1."""
        found: Counter[int] = Counter()
        events = read(self.folder.tensorboard)
        for tag in events.Tags()["images"]:
            for each in events.Images(tag):
                pixels = np.asarray(Image.open(io.BytesIO(each.encoded_image_string)))
                found[each.step if (pixels == each.step % 251).all() else -1] += 1
        return found


def end_script(folder: Path, agent: int, number: int) -> list[str]:
    """Runs a script of some kind to its end; returns what is wrong."""
    body = (CLIENT, COMPONENT)[number % 2]
    way = list(WAYS)[number // 2 % len(WAYS)]
    last, code = WAYS[way]
    words = [sys.executable, "-c", HEAD + body + last, str(folder), str(agent), str(number)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_SECONDS, cwd=ROOT)
    return complaints(f"script that {way}", done.returncode, code, done.stdout + done.stderr)


def end_service(folder: Path, agent: int, number: int) -> list[str]:
    """Starts a service, and ends every other one with SIGTERM; returns what is wrong."""
    waits = number % 2
    words = [sys.executable, __file__, "--service", str(folder), str(agent), str(number)]
    alive = RunFolder(folder).alive / f"agent-{agent}"
    alive.unlink(missing_ok=True)
    with subprocess.Popen(
        [*words, str(waits)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        deadline = time.monotonic() + WAIT_SECONDS
        while waits and process.poll() is None and time.monotonic() < deadline:
            beat = read_beat(alive.parent, alive.name)
            if beat is not None and beat.state is State.running:
                process.send_signal(signal.SIGTERM)
                break
            time.sleep(0.01)
        said, _ = process.communicate(timeout=WAIT_SECONDS)
    return complaints("service", process.returncode, START_AGAIN if waits else 0, said)


def end_kernel(folder: Path, agent: int, number: int) -> list[str]:
    """Runs a cell in a kernel and shuts it down; returns what is wrong."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", cwd=str(ROOT))
    try:
        process: Any = manager.provisioner.process  # type: ignore[union-attr]
        argv = f"import sys; sys.argv = ['', {str(folder)!r}, {agent}, {number}]"
        code = argv + HEAD + (CLIENT, COMPONENT)[number % 2]
        reply = client.execute_interactive(code, timeout=WAIT_SECONDS, output_hook=lambda _: None)
        failed = [] if reply["content"]["status"] == "ok" else [f"kernel: {reply['content']}"]
        # Not by its manager, which kills a kernel that ends slowly.
        client.shutdown()
        process.wait(WAIT_SECONDS)
        return failed + complaints("kernel", process.returncode, 0, "")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def complaints(name: str, code: int, expected: int, said: str) -> list[str]:
    """Describes an end that is not as expected."""
    if code == expected and not said.strip():
        return []
    how = signal.Signals(-code).name if code < 0 else f"exit {code}"
    return [f"{name}: {how}, expected exit {expected}: {said.strip()[-2000:]}"]


KINDS: dict[str, Callable[[Path, int, int], list[str]]] = {
    "script": end_script,
    "service": end_service,
    "kernel": end_kernel,
}
# A kernel takes several times as long as a script.
ORDER = ("script", "service", "script", "script", "service", "kernel", "script", "script")


def run(ends: int, at_once: int) -> list[str]:
    """Starts and ends so many processes; returns what is wrong, in words."""
    wrong: list[str] = []
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="ends-") as temp:
        server = Server(Path(temp) / "run", ends)

        def work(_: int) -> None:
            while (number := next(numbers)) < ends:
                kind = ORDER[number % len(ORDER)]
                wrong.extend(KINDS[kind](server.folder.path, number, number))

        try:
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(work, range(at_once)))
        finally:
            server.close()
        found = server.pictures()
    expected = Counter(range(ends * FRAMES))
    missing = sorted({each // FRAMES for each in expected - found})
    named = [f"{each} ({ORDER[each % len(ORDER)]})" for each in missing[:9]]
    lost = (expected - found).total()
    wrong += [f"{lost} pictures are missing, of processes {named}"] if lost else []
    others = (found - expected).total()
    return wrong + ([f"{others} pictures are wrong or came twice"] if others else [])


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ends", type=int, default=2000, help="processes to start and end")
    parser.add_argument("--at-once", type=int, default=2, help="processes at the same time")
    parser.add_argument("--service", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.service:
        folder, agent, number, waits = given.service
        words = ["--folder", folder, "--name", f"agent-{agent}"]
        return run_service(
            "agent", lambda context: Sends(context, int(number), waits=waits == "1"), words
        )
    began = time.monotonic()
    wrong = run(given.ends, given.at_once)
    seconds = round(time.monotonic() - began)
    summary = {"ends": given.ends, "frames": given.ends * FRAMES, "seconds": seconds}
    sys.stdout.write(json.dumps({**summary, "wrong": wrong}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
