"""Sinks of metrics beside TensorBoard: a CSV file, Weights & Biases, MLflow."""
