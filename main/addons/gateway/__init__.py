"""Commands of gateways and their clients."""
