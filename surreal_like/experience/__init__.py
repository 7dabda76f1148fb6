"""Experience on its way to replay: rows become chunks, which are kept until they are acked."""
