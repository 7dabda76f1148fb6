"""A process that gives way runs at a lower priority, among sessions of processes, too."""

import os
import subprocess
import sys

from tests.polling import until

_PRINTED = """
import os
from pathlib import Path
from session.process.entry import give_way

give_way()
group = Path("/proc/self/autogroup")
print(os.nice(0), group.read_text().split()[-1] if group.exists() else 5)
"""


def test_a_process_gives_way_within_its_session_and_its_session_to_others() -> None:
    command = [sys.executable, "-c", _PRINTED]

    def gives_way() -> bool:
        # As a launcher starts a component: in a session of its own.
        done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
        niceness, of_session = done.stdout.split()
        assert int(niceness) == os.nice(0) + 5
        return of_session == "5"

    # The change of a session is refused just after that of another one, except to root.
    until(gives_way)
