"""League: opponents that play snapshots of a policy that learns."""
