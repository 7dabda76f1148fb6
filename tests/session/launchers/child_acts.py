"""What a forked child does in the tests of fork servers: the first argument says it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from session.process.component import LIFELINE

WARM = threading.get_ident()  # of the thread that imported this module


def main(argv: list[str]) -> int:
    """Does what `argv` says; returns an exit code."""
    act, *arguments = argv
    if act == "return":
        return int(arguments[0])
    if act == "exit":
        sys.exit(arguments[0])
    if act == "raise":
        raise ValueError(arguments[0])
    if act == "knows":
        return int(arguments[0] in sys.modules)
    if act == "describe":
        Path(arguments[0]).write_text(json.dumps(describe()))
    if act == "print":
        sys.stdout.write("said on stdout")
        sys.stderr.write("said on stderr")
    if act == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if arguments:
            sleeper = [sys.executable, "-c", "import time; time.sleep(600)", arguments[0]]
            subprocess.Popen(sleeper).returncode = 0
        time.sleep(600)
    return 0


def describe() -> dict[str, object]:
    """What a child should have of its own, and what it should not have inherited."""
    descriptors = {
        name: os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")
    }
    return {
        "pid": os.getpid(),
        "leads": os.getsid(0) == os.getpid() == os.getpgid(0),
        "argv": sys.argv,
        "title": Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode().strip(),
        "lifeline": os.readlink(f"/proc/self/fd/{os.environ[LIFELINE]}"),
        "threads": len(os.listdir("/proc/self/task")),
        "omp": os.environ["OMP_NUM_THREADS"],
        "sockets": [n for n, path in descriptors.items() if path.startswith("socket:")],
        "pipes": sum(path.startswith("pipe:") for path in descriptors.values()),
        "processes": [n for n, path in descriptors.items() if "pidfd" in path],
        "sigterm": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "warm": threading.get_ident() == WARM,
    }
