"""One module per kind of process, and the command line. No other package imports this one."""

# First: it loads `session` from its place, also where a file of the user has that name.
import surreal_like  # noqa: F401
