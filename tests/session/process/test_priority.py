"""A process that gives way runs at a lower priority, among sessions of processes, too."""

import os
import subprocess
import sys
from pathlib import Path

_PRINTED = """
import os
from pathlib import Path
from session.process.priority import give_way

give_way()
group = Path("/proc/self/autogroup")
print(os.nice(0), group.read_text().split()[-1] if group.exists() else 5)
"""


def test_a_process_gives_way_within_its_session_and_its_session_to_others() -> None:
    command = [sys.executable, "-c", _PRINTED]
    # As a launcher starts a component: in a session of its own.
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    assert done.stdout.split() == [str(os.nice(0) + 5), "5"], done.stderr
    assert Path("/proc/self/autogroup").exists() or sys.platform != "linux"
