"""One module per kind of process, and the command line. No other package imports this one."""

import importlib

try:
    importlib.import_module("surreal_like")
except ImportError as error:
    # A 'session' of the user is in the way; any other missing module is a bug, with its traceback.
    if error.name != "session":
        raise
    raise SystemExit(f"surreal-like: error: {error}") from None
