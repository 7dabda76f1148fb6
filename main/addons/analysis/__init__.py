"""Commands that use what runs have left."""
