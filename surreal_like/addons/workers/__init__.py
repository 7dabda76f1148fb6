"""Worker processes: the environments of an agent step at the same time."""
