"""One module per kind of process, and the command line. No other package imports this one."""

import os
import signal

if os.getpid() == 1:
    # The first process of a container: SIGTERM is ignored until it has a handler, and the imports
    # of a component take seconds.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))

# First: it loads `session` from its place, also where a file of the user has that name.
import surreal_like  # noqa: F401
