"""Metrics of all components: a client in each, one server that writes TensorBoard's files."""
