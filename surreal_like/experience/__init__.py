"""Experience on its way out: rows become chunks, chunks go to a replay shard until it has acked them."""
