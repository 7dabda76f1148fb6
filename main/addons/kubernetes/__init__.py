"""Commands and plans of runs on Kubernetes."""
