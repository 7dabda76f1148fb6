"""Programs and files that show the metrics of a run; `session_config.tensorplex.sinks`."""
