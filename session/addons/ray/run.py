"""Controls a run on a Ray cluster from any machine that shares its folder."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from session.addons.submitted.run import Core, SubmittedRun
from session.errors import MissingExtra, UsageError

# Words of Ray for a job that has not ended.
_WAITS, _RUNS = "PENDING", "RUNNING"


def require_ray() -> None:
    """Rejects an installation without Ray.

    Raises:
        MissingExtra: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra.named("--on ray", "ray")


class RayRun(SubmittedRun):
    """Controls a run whose core is a job of Ray, with the same commands as any other run."""

    place = "ray"
    on_node = "see job {job} in Ray's dashboard"

    def find_core(self) -> Core | None:
        job = ""
        with suppress(FileNotFoundError):
            job = (self.jobs / "core.job").read_text().strip()
        if not job:
            return None
        try:
            info = self._call(lambda client: client.get_job_info(job))
        except UsageError:
            # A cluster may be gone after its last job.
            if self._folder.over:
                return None
            raise
        if info.status not in (_WAITS, _RUNS):
            return None
        return Core(job, info.status == _RUNS, f"{info.status.value}: {info.message}")

    def cancel(self) -> None:
        if core := self.find_core():
            self._call(lambda client: client.stop_job(core.job))
            if not core.runs:
                # Ray ends it as soon as it would start.
                (self.jobs / "core.job").unlink()

    def _call(self, method: Callable[[Any], Any]) -> Any:
        """Calls a method of Ray's client for jobs.

        Raises:
            UsageError: Ray does not answer.
        """
        require_ray()
        from ray.job_submission import JobSubmissionClient

        address = self._folder.read_config().session_config.ray.address
        try:
            return method(JobSubmissionClient(address or None))
        except (OSError, RuntimeError) as error:
            first = str(error).strip().partition("\n")[0]
            raise UsageError(f"Ray does not answer: {first}") from error
