"""Ends of processes with large frames under way."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A peer that has to be reached, so that frames wait in libzmq, and a sender of frames of 1 MiB.
HEAD = """
import os, sys, threading, time
import numpy as np, zmq
from session.wire import AddressBook, Identity, Message, Wire
from session.wire.contexts import close_at_exit, make_context
from session.wire.endpoint import Address
pull = zmq.Context().socket(zmq.PULL)
pull.setsockopt(zmq.RCVHWM, 1)
book = AddressBook.tcp({"replay-0.experience": pull.bind_to_random_port("tcp://127.0.0.1")})
def read(count=1 << 30):
    while count and pull.poll(5000):
        count -= len(pull.recv_multipart()) > 1
    return count
context = make_context()
push = Wire(context, book, Identity("agent-0", 1, b"12345678")).push("replay-0.experience")
def send(count):
    sent = 0
    while sent < count:
        sent += push.send(Message("chunk", {}, {"a": np.full(1 << 20, sent, np.uint8)}))
"""
ENDS = {
    "an open context": "send(6)",
    "an open context, whose frames are read": "threading.Thread(target=read, daemon=True).start()\n"
    "send(9)",
    "an open context in a thread that goes on": """
def work():
    send(6)
    while True:
        time.sleep(0.01)
        push.writable()
threading.Thread(target=work, daemon=True).start()
while push.counters.sent < 6:
    time.sleep(0.001)
""",
    "sent and closed at exit": """
reader = threading.Thread(target=lambda: sys.stdout.write(f"{read(6)} missing"), daemon=True)
reader.start()
def close():
    send(5)
    push._wire.close(5.0)
    context.destroy(0)
    reader.join()
close_at_exit(close)
send(1)  # pyzmq begins to collect only now
""",
    "an error and an interrupt at exit": """
import signal
def interrupt():
    signal.raise_signal(signal.SIGINT)
    sys.stdout.write("goes on")
close_at_exit(interrupt)
def fail():
    raise RuntimeError("as asked")
close_at_exit(fail)
sys.excepthook = lambda kind, error, trace: sys.stdout.write(f"{error}, ")
""",
    "a forked child": """
send(3)
close_at_exit(lambda: sys.stdout.write(f"closed by {'parent' if os.getpid() == own else 'child'}"))
own = os.getpid()
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
""",
}
SAID = {
    "sent and closed at exit": "0 missing",
    "an error and an interrupt at exit": "as asked, goes on",
    "a forked child": "closed by parent",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends_in_peace_with_large_frames_under_way(end: str) -> None:
    for _ in range(2):
        command = [sys.executable, "-W", "ignore", "-c", HEAD + ENDS[end]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr, done.stdout) == (0, "", SAID.get(end, ""))
