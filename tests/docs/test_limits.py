"""Limits that pages name in a sentence are those of the code."""

from __future__ import annotations

import importlib
import re
from operator import attrgetter
from pathlib import Path

import pytest

from main.cli import main
from session.config.defaults import BASE_CONFIG
from session.launchers.registry import list_attached, list_detached
from surreal_like.algorithm.catalog import list_algorithms
from tests.scenarios import SCENARIOS

pytestmark = pytest.mark.usefixtures("quick")

ROOT = Path(__file__).resolve().parents[2]
_WORDS = {"two": 2, "three": 3, "four": 4, "five": 5, "ten": 10}
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Page, a sentence with {} for each number, and where the numbers are: a constant of the code, or a
# default below `session_config`; behind it the unit of the page.
SAID = (
    (
        "concepts",
        "within {} ms of a change",
        ("surreal_like.replay.ack_sender._NEWS_SECONDS * 1000",),
    ),
    (
        "concepts",
        "takes them in, for {} ms at most",
        ("surreal_like.replay.receiver._MOST_SECONDS * 1000",),
    ),
    (
        "concepts",
        "`session_config.sender.max_unacked_chunks` and {} MiB, sends",
        ("surreal_like.experience.chunk_sender.MAX_UNACKED_BYTES / MiB",),
    ),
    (
        "several_machines",
        "no faster than {} a second for each connection (for all connections of a joined "
        "machine together: {}, and {} more for each of its agents). Of faster requests {} wait",
        (
            "session.wire.roles._RUN_RATE",
            "session.wire.roles._RATE",
            "session.wire.roles._RATE_PER_NAME",
            "session.wire.requests._WAITING_REQUESTS",
        ),
    ),
    (
        "several_machines",
        "the key of a joined machine is refused for {} s",
        ("session.wire.zap_handler._BLOCKED_SECONDS",),
    ),
    (
        "several_machines",
        "accept {} MiB a second from one sender in the long run ({} MiB at once), make at most"
        " {} more files than components are planned ({} for scripts), and {} curves for each",
        (
            "session.loggerplex.telemetry_server._BYTES_PER_SECOND / MiB",
            "session.loggerplex.telemetry_server._BYTES_AT_ONCE / MiB",
            "session.loggerplex.log_server._LOGS",
            "session.loggerplex.log_server._SCRIPTS",
            "session.tensorplex.metrics_server._TAGS",
        ),
    ),
    (
        "several_machines",
        "before the key is proved a connection may send 4 KiB, to `ps.join` {} KiB",
        ("session.wire.requests._STRANGER_BYTES / KiB",),
    ),
    (
        "several_machines",
        "only, at most {} GiB; the settings",
        ("surreal_like.addons.tuning.trial_files.SIZE_LIMIT / GiB",),
    ),
    (
        "several_machines",
        "was not there for {} hours",
        ("surreal_like.addons.join.agents.GIVE_UP_SECONDS / 3600",),
    ),
    (
        "several_machines",
        "Each runs `join --keep-trying --give-up-after {}s`",
        ("session.addons.engines.machines.WAIT_SECONDS",),
    ),
    (
        "several_machines",
        "has not acknowledged after {} of `session_config.launcher.grace_seconds`",
        ("surreal_like.experience.leaving._ACKS_SHARE",),
    ),
    (
        "several_machines",
        "Its secret has {} random bits",
        ("surreal_like.addons.join.tokens._SECRET_BYTES * 8",),
    ),
    ("several_machines", "after `session_config.heartbeat.timeout` ({} s)", ("heartbeat.timeout",)),
    ("slurm", "`session_config.slurm.agents_wait_seconds` ({} s)", ("slurm.agents_wait_seconds",)),
    (
        "resume_and_recovery",
        "at most {} MB together (what is left out is an event of the run)",
        ("surreal_like.experiment.user_code._LIMIT_BYTES / 1e+06",),
    ),
    (
        "resume_and_recovery",
        "and their difference (up to {} MB)",
        ("surreal_like.experiment.user_code._DIFF_LIMIT_BYTES / 1e+06",),
    ),
    (
        "resume_and_recovery",
        "its agents go to the next one after {} s",
        ("surreal_like.experience.send_window.FAILOVER_SECONDS",),
    ),
    (
        "resume_and_recovery",
        "({} steps of environments; {} chunks and {} batches of a replay)",
        (
            "surreal_like.agent.step_pulse._PROVEN_STEPS",
            "surreal_like.replay.batch_server._PROVEN",
            "surreal_like.replay.batch_server._PROVEN",
        ),
    ),
    (
        "resume_and_recovery",
        "Every {} s the launcher looks at the memory",
        ("session.launchers.memory_use._LOOK_SECONDS",),
    ),
    (
        "resume_and_recovery",
        "Above {} % there is one warning",
        ("session.launchers.memory_use._WARN_SHARE * 100",),
    ),
    (
        "resume_and_recovery",
        "`session_config.launcher.memory_share` ({}) the run saves",
        ("launcher.memory_share",),
    ),
    (
        "resume_and_recovery",
        "**Roll-back.** After {} bad updates in a row",
        ("surreal_like.learner.bad_updates.BAD_LIMIT",),
    ),
    ("resume_and_recovery", "every `session_config.mirror_seconds` ({})", ("mirror_seconds",)),
    (
        "resume_and_recovery",
        "The mirror asks again after {} s, then after pauses that double, up to {} s",
        (
            "session.addons.mirror.service._FIRST_PAUSE_SECONDS",
            "session.addons.mirror.service._LONGEST_PAUSE_SECONDS",
        ),
    ),
    (
        "resume_and_recovery",
        "only its last block of {} MiB is sent again",
        ("session.addons.copies.run_files.BLOCK_BYTES / MiB",),
    ),
    (
        "resume_and_recovery",
        "(SIGSTOP) for {} s, in which it is killed",
        ("surreal_like.addons.chaos.faults.STOP_SECONDS",),
    ),
    (
        "resume_and_recovery",
        "fills the disk of the run folder for {} s (only one with less than {} GB free",
        (
            "surreal_like.addons.chaos.faults.FULL_SECONDS",
            "surreal_like.addons.chaos.faults._MOST_FREE_BYTES / GiB",
        ),
    ),
    (
        "resume_and_recovery",
        "samples per insert stay within {} % of their setting",
        ("surreal_like.addons.chaos.invariants._SLACK * 100",),
    ),
    (
        "resume_and_recovery",
        "after {} s for the first time, then every `checkpoint.seconds` ({}), less often where"
        " saving takes more than {} % of that time",
        (
            "surreal_like.learner.saver._FIRST_SECONDS",
            "checkpoint.seconds",
            "surreal_like.learner.saver._SHARE * 100",
        ),
    ),
    (
        "monitoring",
        "waited for batches for more than {} % of the last {} s",
        (
            "session.show.wanted_agents.LEARNER_WAITS * 100",
            "session.show.wanted_agents.LEARNER_SECONDS",
        ),
    ),
    (
        "monitoring",
        "waited for replay for more than {} % of the last {} s",
        (
            "session.show.wanted_agents.SENDERS_WAIT * 100",
            "session.show.wanted_agents.SENDERS_SECONDS",
        ),
    ),
    ("monitoring", "are free than {} % of the present", ("session.show.wanted_agents.FREE * 100",)),
    (
        "monitoring",
        "The number changes at most once in {} s, unless",
        ("session.show.wanted_agents.HOLD_SECONDS",),
    ),
    (
        "kubernetes",
        "the ConfigMap carries it, up to {} KiB",
        ("session.addons.kubernetes.settings.LARGEST_CODE_BYTES / KiB",),
    ),
    (
        "kubernetes",
        "up to {} times (`backoffLimit`",
        ("session.addons.kubernetes.objects._MANY",),
    ),
    (
        "kubernetes",
        "`session_config.kubernetes.ttl_seconds`, {} by default",
        ("kubernetes.ttl_seconds",),
    ),
    (
        "kubernetes",
        "keeps the curves of {} clients beside the",
        ("session.tensorplex.metrics_server._CLIENTS",),
    ),
    ("gateway", "a client that reconnects within `grace_seconds` ({})", ("gateway.grace_seconds",)),
    ("gateway", "says nothing for `idle_seconds` ({}) while", ("gateway.idle_seconds",)),
    ("gateway", "Where all `max_clients` ({}) places", ("gateway.max_clients",)),
    ("gateway", "within `answer_seconds` ({})", ("gateway.answer_seconds",)),
    (
        "gateway",
        "`too_many_errors` | {} in a row",
        ("surreal_like.addons.gateway.frontend._FAILURES",),
    ),
    (
        "gateway",
        "Before `welcome` a connection may send {} KiB",
        ("session.addons.gateway.http.HEAD_LIMIT_BYTES / KiB",),
    ),
    (
        "gateway",
        "nested at most {} deep, a map has at most {} entries, a text {} KiB. A session may "
        "report {} names in `metrics`; all clients of a gateway have {} curves",
        (
            "surreal_like.addons.gateway.payloads._DEPTH",
            "surreal_like.addons.gateway.payloads._ENTRIES",
            "surreal_like.addons.gateway.payloads._TEXT_BYTES / KiB",
            "surreal_like.addons.gateway.messages.METRIC_NAMES",
            "surreal_like.addons.gateway.counters._CURVES",
        ),
    ),
    (
        "gateway",
        "A token has {} random bits",
        ("session.addons.gateway.client_tokens._SECRET_BYTES * 8",),
    ),
    (
        "gateway",
        "take it for dead after {} s without a byte",
        ("surreal_like.addons.gateway.clients.surreal_client._SILENT_SECONDS",),
    ),
    (
        "tune",
        "of each trial ({} of them, as far as {} seconds go)",
        ("surreal_like.addons.tuning.start._MOST", "surreal_like.addons.tuning.start.SECONDS"),
    ),
    (
        "tune",
        "as many as fit into {} % of the free memory",
        ("surreal_like.addons.tuning.slots._RESIDENT_SHARE * 100",),
    ),
    (
        "tune",
        "the worker is killed, or silent for {} s",
        ("surreal_like.addons.tuning.worker_connections._SILENT_SECONDS",),
    ),
    (
        "tune",
        "{} lost machines in a row are one",
        ("surreal_like.addons.tuning.placement.LOST_LIMIT",),
    ),
    (
        "metrics",
        "quantiles 0.1, 0.5 and 0.9 of the last {} looks",
        ("surreal_like.coordinator.progress_file._RECENT_LOOKS",),
    ),
    (
        "metrics",
        "to {} s: the tracker as often as it takes, the same points four times; meanwhile {} "
        "points wait",
        (
            "session.tensorplex.sinks.sink._LONGEST_PAUSE_SECONDS",
            "session.tensorplex.sinks.sink._WAITING",
        ),
    ),
    (
        "metrics",
        "have {} of what is left of `session_config.launcher.grace_seconds`",
        ("session.tensorplex.sinks.sink._END_SHARE",),
    ),
    ("metrics", "is cut after {} characters", ("session.tensorplex.groups._NAME_LIMIT",)),
    (
        "metrics",
        "holds at most {} MiB of arrays",
        ("session.tensorplex.metrics_client._RECORD_LIMIT_BYTES / MiB",),
    ),
    ("troubleshooting", "`session_config.gateway.grace_seconds` ({})", ("gateway.grace_seconds",)),
    ("troubleshooting", "`session_config.gateway.idle_seconds` ({})", ("gateway.idle_seconds",)),
    (
        "several_machines",
        "has left, or has been silent, for {} minutes go to the next one",
        ("session.process.component.SILENT_SECONDS / 60",),
    ),
    (
        "several_machines",
        "an agent that stands in {} of the last {} bad batches",
        ("surreal_like.learner.bad_updates.REPEATED", "surreal_like.learner.bad_updates.NEWEST"),
    ),
    (
        "resume_and_recovery",
        "a guest that stands in {} of the last {} bad batches is *fenced*",
        ("surreal_like.learner.bad_updates.REPEATED", "surreal_like.learner.bad_updates.NEWEST"),
    ),
    (
        "resume_and_recovery",
        "values above {} are reported once (event `large_values`)",
        ("surreal_like.data.bounds.UNUSUAL",),
    ),
    (
        "resume_and_recovery",
        "names the {} largest processes",
        ("session.launchers.memory_use._NAMED",),
    ),
    (
        "resume_and_recovery",
        "the first {} batches for which `learn()` raised",
        ("surreal_like.learner.bad_updates._MOST",),
    ),
    (
        "resume_and_recovery",
        "replay checks each chunk, not one in {} as before",
        ("surreal_like.replay.chunk_validator._EVERY",),
    ),
    (
        "troubleshooting",
        "single chunks (one in {})",
        ("surreal_like.experience.chunk_sender.TRACE_EVERY",),
    ),
    (
        "troubleshooting",
        "hang (no heartbeat for {} s) while the run goes on",
        ("session.process.heartbeat.HANGS_SECONDS",),
    ),
    (
        "performance",
        "copies the next batches while an update runs, at most {} ahead",
        ("surreal_like.learner.device_prefetch.AHEAD",),
    ),
    (
        "metrics",
        "The first {} metrics that have another name",
        ("session.tensorplex.metrics_server._RENAMED",),
    ),
    ("metrics", "Of tensors above {} numbers", ("surreal_like.learner.metrics._MOST",)),
    (
        "gateway",
        "every {} s while an answer is owed",
        ("surreal_like.addons.gateway.sessions._WAIT_SECONDS",),
    ),
    (
        "gateway",
        "sends no request for {} times as long",
        ("surreal_like.addons.gateway.sessions._PROLONGED",),
    ),
    (
        "gateway",
        "and {} names in the `metrics` of their episodes",
        ("surreal_like.addons.gateway.counters._EPISODE_NAMES",),
    ),
    (
        "gateway",
        "takes rewards and observations between -{} and",
        ("surreal_like.data.bounds.ANSWERED",),
    ),
    (
        "gateway",
        "within -{} and 1e6 where it has none",
        ("surreal_like.data.bounds.LARGEST",),
    ),
    (
        "environment_options",
        "A task has at most {} entries; names have at most {} characters, texts at most {},",
        (
            "surreal_like.data.task.ENTRIES",
            "surreal_like.data.task.NAME_CHARACTERS",
            "surreal_like.data.task.TEXT_CHARACTERS",
        ),
    ),
    (
        "your_own_environment",
        "a flat dict of numbers (at most {})",
        ("surreal_like.experience.chunk._OWN_NUMBERS",),
    ),
    (
        "your_own_environment",
        "An error in the first {} steps of a component",
        ("surreal_like.agent.step_pulse._PROVEN_STEPS",),
    ),
    (
        "environment_options",
        "takes more than {} seconds.",
        ("surreal_like.agent.step_pulse._SLOW_SECONDS",),
    ),
    (
        "environment_options",
        "`env_config.max_env_restarts` in {} minutes",
        ("surreal_like.env.restarts._WINDOW_SECONDS / 60",),
    ),
    (
        "environment_options",
        "is started again: {} seconds by default",
        ("heartbeat.timeout",),
    ),
    (
        "environment_options",
        "must fit into it, {} seconds by default",
        ("launcher.grace_seconds",),
    ),
    (
        "environment_options",
        "of its last parameters: {} seconds by default",
        ("evaluator.final_seconds",),
    ),
    (
        "using_results",
        "drawn anew with replacement, {} times",
        ("surreal_like.addons.analysis.statistics.DRAWS",),
    ),
    (
        "using_results",
        "compares {} random observations with `load_policy`",
        ("surreal_like.addons.analysis.export._COMPARED",),
    ),
    (
        "using_results",
        "continuous ones and states within {};",
        ("surreal_like.addons.analysis.export._TOLERANCE",),
    ),
)


def number(where: str) -> float:
    """Returns a number such as that of ``gateway.max_clients``, or ``a.module._BYTES / MiB``."""
    place, _, unit = where.partition(" ")
    module, _, name = place.rpartition(".")
    if module.startswith(("session.", "surreal_like.")):
        value = float(getattr(importlib.import_module(module), name))
    else:
        value = float(attrgetter(place)(BASE_CONFIG.session_config))
    if unit.startswith("* "):
        return value * float(unit[2:])
    return value / (_UNITS.get(unit[2:]) or float(unit[2:])) if unit else value


def numbers_of(page: str, sentence: str) -> list[float]:
    """Returns the numbers that a page has at the places of {} in a sentence."""
    text = re.sub(r"\s+", " ", (ROOT / "docs" / f"{page}.md").read_text())
    one = rf"([\d,_]*\.?\d+(?:e-?\d+)?|{'|'.join(_WORDS)})"
    pattern = re.escape(sentence).replace(r"\{\}", one)
    found = re.search(pattern, text)
    assert found is not None, f"{page}.md does not say: {sentence}"
    return [float(_WORDS.get(each, re.sub("[,_]", "", each))) for each in found.groups()]


@pytest.mark.parametrize(("page", "sentence", "places"), SAID)
def test_a_page_names_the_limits_of_the_code(
    page: str, sentence: str, places: tuple[str, ...]
) -> None:
    assert numbers_of(page, sentence) == pytest.approx([number(each) for each in places])


def test_pages_name_each_launcher() -> None:
    launchers = {*list_attached(), *list_detached()}
    page = (ROOT / "docs" / "launchers.md").read_text()
    [head] = [line for line in page.splitlines() if line.startswith("| | serial")]
    assert set(head.casefold().strip("| ").split(" | ")) == launchers


def test_the_first_page_names_each_algorithm() -> None:
    text = (ROOT / "docs" / "index.md").read_text()
    front = re.search(r"\[algorithms\]\(algorithms\.md\): (.*?);", text)
    assert front is not None
    named = re.split(", | and ", front[1].casefold())
    assert sorted(named) == sorted(list_algorithms())


def test_the_page_of_recovery_names_faults_and_times_of_the_scenarios() -> None:
    page = "resume_and_recovery"
    assert numbers_of(page, "`make chaos` tries {} faults in runs") == [len(SCENARIOS)]
    assert f"$ make chaos       # {len(SCENARIOS)} faults," in (ROOT / "README.md").read_text()
    within = {each.recovers: each.within_seconds for each in SCENARIOS if each.within_seconds}
    said = (
        "an agent must be back within {} s, a parameter server within {} s, a replay shard with "
        "all its rows within {} s, a learner within {} s"
    )
    wanted = [within[name] for name in ("agent", "ps", "replay", "learner")]
    assert numbers_of(page, said) == wanted


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("cartpole_dqn",), "requests of this experiment add up to {} cores and {} GB"),
        (
            ("--algorithm", "dqn", "--env", "gym:CartPole-v1", "--agents", "500"),
            "with the defaults {} cores and {} GB",
        ),
    ],
)
def test_the_page_of_kubernetes_names_what_is_requested(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words, "--on", "kubernetes"]) == 0
    asked = re.search(r"requests ([\d.]+) cores, (\S+) GB of memory", capsys.readouterr().err)
    assert asked is not None
    assert numbers_of("kubernetes", sentence) == [float(each) for each in asked.groups()]
