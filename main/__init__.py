"""One module per kind of process, and the command line. No other package imports this one."""
