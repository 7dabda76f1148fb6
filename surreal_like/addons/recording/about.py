"""The first record of each segment: the run, the policy, and the specs of the rows."""

from __future__ import annotations

from typing import Any

from session.config import Config
from session.json_file import OBJECT, TEXT
from session.wire import Message
from session.wire.schema import LARGE_HEADER_BYTES, Plain, Schema
from surreal_like.data.frames import frame_spec, stack_size

_RUN = Plain({"id": TEXT, "algorithm": TEXT, "environment": TEXT, "policy": TEXT})
_SPECS = Plain({"obs_spec": OBJECT, "action_spec": OBJECT})
# The first message of each segment.
ABOUT = Schema({"run": _RUN, "specs": _SPECS}, header_bytes=LARGE_HEADER_BYTES)


def about(
    run: str, *, algorithm: str, environment: str, policy: str, specs: dict[str, Any]
) -> Message:
    """Returns the first message of each segment.

    Args:
        run: identity of the run, or of what else has made the rows.
        algorithm, environment: their names.
        policy: name of the policy that the rows are of.
        specs: ``obs_spec`` and ``action_spec`` of a row.
    """
    names = {"id": run, "algorithm": algorithm, "environment": environment, "policy": policy}
    return Message("about", {"run": names, "specs": specs})


def describe(config: Config, policy: str) -> Message:
    """Returns the first message of the segments of a run.

    Args:
        config: config of the policy.
        policy: name of that policy.
    """
    env = config.env_config
    return about(
        str((config.get("run") or {}).get("id", "")),
        algorithm=str(config.algorithm),
        environment=str(env.env_name),
        policy=policy,
        specs={
            "obs_spec": frame_spec(env.obs_spec.to_dict(), stack_size(env)),
            "action_spec": env.action_spec.to_dict(),
        },
    )
