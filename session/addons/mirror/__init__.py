"""Mirror: copies of a run's files on object storage, from which it goes on on another machine."""
