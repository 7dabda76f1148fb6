"""One module for each kind of process, and the command line. Nothing imports this package."""
