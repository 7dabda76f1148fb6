"""The mirror as a component: copies the run folder in a thread, and again while it is away."""

from __future__ import annotations

import random
import threading
import time

from session.addons.copies.run_files import BLOCK_BYTES
from session.addons.mirror.copier import Copier, Owner
from session.addons.mirror.storage import Storage
from session.config import Config
from session.errors import UsageError, WireError
from session.folder import RunFolder
from session.process.context import Context, run_fingerprint, run_part
from session.process.heartbeat import ENDED, read_beats
from session.process.periodic import double_pause
from session.process.service import Service
from session.wire.connection_limits import Bucket

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 60.0
# While the end of the run waits.
_LAST_PAUSE_SECONDS = 1.0
_OTHERS_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_PACE_SECONDS = 0.05


def place_of(config: Config, run: RunFolder) -> str:
    """Returns the URL of a run's mirror: below that of the config, under the name of its folder.

    Args:
        config: config of the run.
        run: the run folder.
    """
    path = run.path.absolute()
    tuning = f"{path.parent.name}/" if (config.get("run") or {}).get("trial") else ""
    return f"{config.session_config.mirror.rstrip('/')}/{tuning}{path.name}"


def identify(config: Config) -> str:
    """Returns a text that differs between runs, and is that of all parts of one run."""
    began = (config.get("run") or {}).get("first_started", 0.0)
    return f"{run_fingerprint(config)[:16]}-{config.session_config.seed}-{began}"


class MirrorService(Service):
    """Copies the run folder every few seconds, and once more at the end of the run.

    A copy takes a thread of its own, because requests to object storage block. While the mirror
    is away it is asked again, after pauses that double and are drawn at random by half.

    Args:
        context: context of the component.

    Raises:
        UsageError: the component has no run folder to read.
    """

    def __init__(self, context: Context) -> None:
        if context.folder is None:
            raise UsageError("the mirror copies the run folder: start it with --folder")
        session = context.config.session_config
        self._context = context
        self._folder = context.folder
        self._now = context.clock.now
        self._random = random.Random(context.seed)
        self._seconds: float = session.mirror_seconds
        self._grace_seconds: float = session.launcher.grace_seconds
        rate = float(session.mirror_bytes_per_second)
        self._bucket = Bucket(rate, max(rate, BLOCK_BYTES), time.monotonic())
        self._abandoned = threading.Event()
        owner = Owner(identify(context.config), run_part(context.config), context.incarnation)
        storage = Storage(place_of(context.config, context.folder))
        self._copier = Copier(context.folder, storage, owner, self._pace)
        self._url = storage.url
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._failures = 0
        self._away_since: float | None = None
        self._copied_at: float | None = None
        self._due_at = self._look_at = self._now()
        self._drained_at: float | None = None
        self._began_end = 0.0
        self._last = self._done = False
        context.event("mirror", f"copies the run to {self._url}")

    # -- the frame of a service

    def tick(self) -> bool:
        """Ends a copy that is complete, and begins one that is due.

        Raises:
            UsageError: the place belongs to another run.
        """
        if self._thread is not None:
            if self._thread.is_alive():
                return False
            self._end_copy()
        elif self._may_begin():
            self._begin_copy()
        return False

    def drain(self) -> None:
        """Asks for the last copy; it begins when telemetry has written its last lines."""
        if self._drained_at is None:
            self._drained_at, self._began_end = self._now(), time.monotonic()
            self._due_at = min(self._due_at, self._now())

    @property
    def done(self) -> bool:
        """True once the last copy is complete."""
        return self._done

    @property
    def exit_code(self) -> int:
        """1 if the last copy was not complete within the grace period."""
        return int(self._drained_at is not None and not self._done)

    @property
    def proven(self) -> bool:
        """True once a copy is complete."""
        return self._copied_at is not None

    def status(self) -> dict[str, float]:
        """Returns the age of the newest copy, the bytes sent, and whether the mirror is away."""
        age = {} if self._copied_at is None else {"copy_age_seconds": self._now() - self._copied_at}
        return {
            **age,
            "sent_bytes": float(self._copier.sent_bytes),
            "away": float(self._away_since is not None),
        }

    def close(self) -> None:
        """Waits for the last copy for the rest of the grace period; gives up any other one."""
        if self._drained_at is not None and not self._context.orphaned:
            # Real time: the counted clock of a serial run does not wait for a thread.
            until = self._began_end + self._grace_seconds
            while not self._done and time.monotonic() < until:
                if self._thread is None:
                    self._begin_copy()
                self._join(until - time.monotonic())
        if self.exit_code:
            self._context.log.warning("mirror %s lacks what came last of the run", self._url)
        self._abandoned.set()

    # -- copies

    def _may_begin(self) -> bool:
        now = self._now()
        if now < self._look_at:
            return False
        self._look_at = now + _LOOK_SECONDS
        if self._drained_at is None and self._context.may_exit and self._run_is_left():
            self.drain()
        if self._drained_at is None or now >= self._drained_at + _OTHERS_SECONDS:
            return now >= self._due_at
        return now >= self._due_at and self._others_ended()

    def _run_is_left(self) -> bool:
        """Returns True once all others have ended by themselves, where no launcher asks for it."""
        return self._context.run_over and self._others_ended()

    def _others_ended(self) -> bool:
        timeout = self._context.config.session_config.heartbeat.timeout
        beats = read_beats(self._folder.alive).values()
        others = [beat for beat in beats if beat.name != self._context.name]
        return all(beat.state in ENDED or beat.late(timeout) for beat in others)

    def _begin_copy(self) -> None:
        self._last = self._drained_at is not None
        self._thread = threading.Thread(
            target=self._copy, args=(self._context.clock.time(),), name="mirror", daemon=True
        )
        self._thread.start()

    def _copy(self, now: float) -> None:
        """Runs in the thread."""
        try:
            self._copier.copy(now)
        except Exception as error:  # noqa: BLE001 - raised again, or reported, by the component
            self._error = error

    def _join(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(max(0.0, seconds))
            if not self._thread.is_alive():
                self._end_copy()

    def _end_copy(self) -> None:
        """Handles the outcome of a copy.

        Raises:
            UsageError: the place belongs to another run.
        """
        error, self._error, self._thread = self._error, None, None
        if error is None:
            self._on_copied()
        elif isinstance(error, WireError | OSError):
            self._on_away(str(error))
        else:
            raise error

    def _on_copied(self) -> None:
        now = self._now()
        if self._away_since is not None:
            away = now - self._away_since
            self._context.event("mirror_back", f"{self._url} was away for {away:.1f} s")
        self._failures, self._away_since, self._copied_at = 0, None, now
        self._due_at = now + self._seconds
        self._done = self._last

    def _on_away(self, problem: str) -> None:
        now = self._now()
        if self._away_since is None:
            self._away_since = now
            self._context.event("mirror_away", f"{problem}; asks again until it answers")
            self._context.log.warning("%s; the run goes on without copies", problem)
        self._due_at = now + self._pause_seconds()
        self._failures += 1

    def _pause_seconds(self) -> float:
        """Returns the time to the next try: doubled with each failure, half of it at random."""
        limit = _LAST_PAUSE_SECONDS if self._drained_at is not None else _LONGEST_PAUSE_SECONDS
        longest = double_pause(_FIRST_PAUSE_SECONDS, self._failures, limit)
        return longest * self._random.uniform(0.5, 1.0)

    def _pace(self, size_bytes: int) -> None:
        """Waits in the thread until a block may be sent; real time, as that of the network."""
        while not self._bucket.take(time.monotonic(), size_bytes):
            if self._abandoned.wait(_PACE_SECONDS):
                raise WireError(f"mirror {self._url}: the copy was given up")
