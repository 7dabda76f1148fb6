"""Agents that wait for the version that has learned from their last rows."""

from __future__ import annotations

from collections.abc import Callable

from surreal_like.agent.sending import Sending


class Synchronous:
    """Lets an agent wait after each part of its experience, until a version has learned from it.

    A part is one chunk, or the steps of one training of its algorithm.

    Args:
        sending: fetches the parameters of the agent, and sends its chunks.
        flush: cuts a chunk of the rows so far.
    """

    def __init__(self, sending: Sending, flush: Callable[[], None]) -> None:
        self._sending, self._flush = sending, flush
        agent = sending.agent
        # (learner incarnation, version) of the part sent last, the incarnation of the replay that
        # has it, and the number of rows dropped before it.
        self._behind: tuple[int, int] | None = None
        self._holder = self._dropped = 0
        # Steps of a part, 0: a part is one chunk; additional steps of the first part; steps made
        # of the present part; and whether a chunk of it has been sent.
        how = agent.learner_config["replay"]["iteration"]
        streams = agent.session_config["agent"]["num"] * agent.env_config["num_envs"]
        self._steps: int = how["unroll_length"]
        self._first_steps: int = how["initial_collect_steps"] // max(1, streams)
        self._made, self._part_sent = 0, False
        # Number of the next chunk before the present step.
        self._next = 0

    def waits(self) -> bool:
        """Returns True while the agent waits for a version after its last part."""
        if self._behind is None:
            return False
        sending = self._sending
        window, fetcher = sending.window, sending.fetcher
        # A restarted replay does not have the part: no newer version would follow from it.
        lost = self._holder and window.replay != self._holder
        refused = window.dropped > self._dropped
        if lost or refused or fetcher.client.have > self._behind:
            self._behind, sending.waits_above = None, 0
            return False
        self._holder = window.replay
        if fetcher.idle:
            fetcher.want_newer()
        return True

    def begin(self) -> None:
        """Begins a step."""
        self._next = self._sending.window.next_sequence

    def count(self) -> None:
        """Counts the step."""
        sending = self._sending
        window, steps = sending.window, self._steps
        self._made += 1
        if steps and not sending.agent.progress.iteration:
            steps += self._first_steps
        over = self._made >= steps
        if steps and over:
            self._flush()
        if window.next_sequence == self._next:
            return
        if not self._part_sent:
            self._holder, self._dropped = window.replay, window.dropped
        self._part_sent = not over
        if over:
            self._behind, self._made = sending.fetcher.client.have, 0
            sending.waits_above = self._behind[1]
