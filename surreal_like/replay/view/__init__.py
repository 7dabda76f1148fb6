"""Views: rows of storage become the columns of a batch."""
