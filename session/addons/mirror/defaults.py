"""Settings of the mirror."""

from __future__ import annotations

from session.config.key import FROM_1, SOME_TIME, Key

MIRROR = Key(
    "",
    "URL of a folder on object storage, such as s3://bucket/prefix, below which the run folder is "
    'copied while the run goes on, under its name (S3: extra s3); "": no copies.',
)
MIRROR_SECONDS = Key(
    5.0, "Time between two copies to the mirror.", unit="seconds", within=SOME_TIME
)
MIRROR_BYTES_PER_SECOND = Key(
    20_000_000, "Maximum rate of copying to the mirror.", unit="bytes per second", within=FROM_1
)
