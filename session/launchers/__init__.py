"""Launchers run a topology: in this thread, as processes, in windows of tmux, on Kubernetes."""
