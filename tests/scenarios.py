"""Faults that a run must survive: what is injected, what is expected, and the tests that try it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """One row of the table of ``make chaos``.

    Args:
        number: its number.
        injected: the fault.
        expected: what holds then.
        tests: node ids of pytest below ``tests/``, with all their parameters.
        recovers: beginning of the names of the components whose time of recovery counts.
        within_seconds: the longest of these times that is allowed, None for any.
    """

    number: int
    injected: str
    expected: str
    tests: tuple[str, ...]
    recovers: str = ""
    within_seconds: float | None = None


_KILLED = "runs/test_killed_parts.py::"
_EACH = _KILLED + "test_each_part_is_killed_once"
_SERIAL = "runs/test_serial_faults.py::"
_FAULTS = "runs/test_faults.py::"
_KEPT = "runs/test_kept_rows.py::"
_JOIN = "addons/join/runs/test_join.py::"
_DAMAGED = "surreal_like/test_damaged_files.py::"
_SHARD = "surreal_like/replay/"
_WIRE = "session/wire/"
_ZAP = _WIRE + "test_zap_handler.py::"
_INTERRUPTED = "runs/test_interrupted.py::"
_SUPERVISION = "session/launchers/test_supervisor_state_machine.py::"
_BAD = "surreal_like/learner/test_bad_batches.py::"

SCENARIOS = (
    Scenario(
        1,
        "SIGKILL an agent in an episode",
        "started again under its name; the open episode is cut, its rows are bounded",
        (
            _EACH,
            _SERIAL + "test_an_agent_dies_with_rows_that_it_has_not_sent",
            _SHARD + "test_n_step_view.py::test_rows_before_a_cut_never_become_ready",
        ),
        "agent",
        3.0,
    ),
    Scenario(
        2,
        "SIGKILL all agents",
        "the learner trains while the limiter allows, waits, goes on by itself",
        (
            _KILLED + "test_all_agents_at_once",
            _SERIAL + "test_without_agents_the_learner_waits_and_then_goes_on",
        ),
        "agent",
        3.0,
    ),
    Scenario(
        3,
        "the environment's constructor raises",
        "a bounded number of restarts, then the run fails with the first traceback",
        (
            _FAULTS + "test_a_constructor_that_raises_is_shown_first",
            _SUPERVISION + "test_others_are_unaffected_until_the_budget_is_spent",
            _SERIAL + "test_too_many_deaths_end_the_run_with_the_first_one",
        ),
    ),
    Scenario(
        4,
        "an agent hangs (SIGSTOP) and wakes up",
        "replaced when its heartbeat is late; one that wakes is refused",
        (
            _KILLED + "test_an_agent_that_hangs_is_replaced",
            _FAULTS + "test_one_name_twice",
            _SUPERVISION + "test_silence_is_death",
            _SHARD + "test_chunk_accounts.py::test_older_incarnations_are_refused_with_the_reason",
        ),
        "agent",
    ),
    Scenario(
        5,
        "env.step returns NaN, a wrong dtype or shape",
        "refused at the sender with the field's name; never reaches replay",
        (_FAULTS + "test_what_an_environment_must_not_give",),
    ),
    Scenario(
        6,
        "SIGKILL replay under load",
        "every acknowledged row once, the others are sent again; what is lost is counted",
        (
            _EACH,
            _KEPT + "test_many_kills_under_load",
            _KEPT + "test_the_account_of_a_run_says_what_a_kill_has_cost",
            "runs/test_accounts.py::test_chunks_of_a_killed_replay_are_sent_again",
            _SERIAL + "test_replay_dies_before_its_acks_arrive",
        ),
        "replay",
        1.0,
    ),
    Scenario(
        7,
        "SIGKILL replay during a snapshot",
        "the snapshot before is used, the half-written one is removed",
        (
            _KEPT + "test_a_kill_during_a_snapshot_leaves_the_one_before",
            "session/test_newest_checkpoint.py"
            "::test_a_process_killed_while_it_replaced_a_checkpoint_loses_none",
        ),
        "replay",
    ),
    Scenario(
        8,
        "disk full: checkpoint, snapshot, log",
        "the run goes on with an event; the old files stay whole",
        (
            "runs/test_full_disk.py::test_a_full_disk_is_survived",
            _SHARD + "test_recovery.py::test_a_full_disk_ends_nothing",
            "session/loggerplex/test_log_server.py"
            "::test_full_disk_does_not_end_the_server_and_is_reported",
            "session/test_checkpoint.py::test_a_failed_write_leaves_the_old_ones_whole",
        ),
    ),
    Scenario(
        9,
        "a damaged checkpoint or snapshot",
        "an error names the file; the generation before is used",
        (
            _DAMAGED + "test_a_damaged_checkpoint_falls_back_one_generation",
            _DAMAGED + "test_one_clear_line_where_none_is_left",
            _DAMAGED + "test_a_damaged_snapshot_falls_back_one_generation",
            _DAMAGED + "test_one_clear_line_where_no_snapshot_is_left",
        ),
    ),
    Scenario(
        10,
        "SIGKILL the learner",
        "weights, optimiser, counters restored; versions go on; repeated updates counted",
        (
            _EACH,
            _SERIAL + "test_the_learner_dies_between_a_publication_and_its_checkpoint",
            "surreal_like/learner/test_saver.py"
            "::test_a_restored_learner_goes_on_as_if_nothing_had_happened",
        ),
        "learner",
        10.0,
    ),
    Scenario(
        11,
        "SIGKILL the parameter server",
        "agents act on; the new one has the newest parameters at once",
        (
            _EACH,
            _SERIAL + "test_a_new_parameter_server_has_the_newest_version_before_the_next_one",
        ),
        "ps",
        2.0,
    ),
    Scenario(
        12,
        "SIGKILL Tensorplex and Loggerplex",
        "training is the same; clients reconnect; drops are counted",
        (
            _EACH,
            _SERIAL + "test_metrics_and_logs_that_die_change_nothing_that_is_learned",
            "session/tensorplex/test_process.py"
            "::test_killed_server_is_followed_by_one_that_goes_on",
            _WIRE + "test_telemetry_buffer.py::test_nothing_is_lost_uncounted",
        ),
        "tensorplex loggerplex",
    ),
    Scenario(
        13,
        "SIGKILL one of two replay shards",
        "sampling and inserts go on with the other; late priorities are ignored, counted",
        (
            _KILLED + "test_one_of_two_shards",
            _SERIAL + "test_one_of_two_shards_dies",
            _SHARD + "test_shards.py"
            "::test_a_lost_shard_is_passed_over_and_its_agent_goes_to_the_next",
        ),
        "replay",
        1.0,
    ),
    Scenario(
        14,
        "packets lost, 1 % and all; 200 ms delay",
        "silence is noticed in seconds; nothing lost or ended that lives",
        (
            _JOIN + "test_lost_packets_are_no_deaths",
            _JOIN + "test_a_run_that_has_become_silent_is_left",
            "runs/test_accounts.py::test_a_slow_network_loses_nothing_and_ends_nothing",
            "runs/test_accounts.py::test_a_connection_that_is_lost_and_healed_leaves_no_hole",
        ),
    ),
    Scenario(
        15,
        "the learner takes 5 s per update",
        "agents wait; what is on its way is bounded; nothing lost uncounted",
        (
            _FAULTS + "test_a_learner_of_5_s_per_update_holds_the_agents_back",
            _SHARD + "test_batch_server.py::test_the_queue_holds_the_sender_back",
            "surreal_like/agent/test_loop.py::test_a_full_window_stops_stepping_until_replay_reads",
        ),
    ),
    Scenario(
        16,
        "500 clients connect at once after a restart",
        "all are served within 30 s",
        (_FAULTS + "test_500_clients_of_a_restarted_server",),
        "clients",
        30.0,
    ),
    Scenario(
        17,
        "one name started twice",
        "the older process ends itself",
        (_FAULTS + "test_one_name_twice",),
    ),
    Scenario(
        18,
        "another protocol, config or specs",
        "refused in the handshake; both sides name both values",
        (
            "surreal_like/ps/test_membership.py::test_another_run_is_refused_with_both_values",
            "surreal_like/ps/test_parameter_server.py"
            "::test_another_config_is_refused_on_both_sides_and_logged_once_here",
            _ZAP + "test_both_sides_report_another_protocol",
            _JOIN + "test_strangers_are_refused_and_a_flood_of_them_does_no_harm",
        ),
    ),
    Scenario(
        19,
        "garbage and hostile bytes on each port",
        "dropped and counted; the process lives; no code runs",
        (
            _FAULTS + "test_garbage_on_every_port",
            "runs/test_wrong_messages.py",
            "addons/join/runs/test_attacker.py",
            _WIRE + "test_codec.py::test_hostile_bytes_raise_the_named_error",
        ),
    ),
    Scenario(
        20,
        "a wrong CURVE key, or none",
        "reaches no handler; counted; the client names the reason",
        (
            _ZAP + "test_a_stranger_learns_that_its_key_is_unknown",
            _ZAP + "test_a_plain_client_learns_that_keys_are_missing",
            _ZAP + "test_a_client_of_another_run_learns_that_the_handshake_breaks",
            _ZAP + "test_sources_are_reported_once",
        ),
    ),
    Scenario(
        21,
        "SIGTERM to every process",
        "saved, accounts complete; components end by themselves (0 or 75)",
        (
            _INTERRUPTED + "test_sigterm_to_every_process",
            "session/launchers/test_detached.py::test_the_first_signal_ends_the_run_cleanly",
        ),
    ),
    Scenario(
        22,
        "Ctrl-C once, and twice",
        "a clean end; then at once; no process is left",
        (
            _INTERRUPTED + "test_ctrl_c_then_resume",
            _INTERRUPTED + "test_ctrl_c_while_it_starts",
            _INTERRUPTED + "test_ctrl_c_twice_ends_at_once",
        ),
    ),
    Scenario(
        23,
        "an evaluator dies, or hangs",
        "training is the same; its score is missing, not zero",
        (
            _EACH,
            _FAULTS + "test_an_evaluator_that_hangs_delays_no_component",
            _SERIAL + "test_an_evaluator_that_dies_changes_nothing_that_is_learned",
        ),
        "eval",
    ),
    Scenario(
        24,
        "a loss or gradient of NaN",
        "no update; batch kept; after k in a row back to a checkpoint, then failed",
        (
            _BAD + "test_what_is_not_finite_has_its_own_limit_and_is_kept_once",
            "surreal_like/learner/test_poison.py"
            "::test_a_second_time_without_progress_fails_the_run",
            "surreal_like/learner/test_optimizer.py"
            "::test_a_bad_loss_changes_nothing_and_is_counted",
            "runs/test_poison.py::test_a_run_goes_back_and_on_after_an_agent_of_its_own_poisons_it",
        ),
    ),
    Scenario(
        25,
        "random kills of every role for 80 s",
        "the run reaches its goal; every invariant holds",
        ("addons/chaos/test_chaos.py",),
    ),
    Scenario(
        26,
        "a long run",
        "memory and descriptors stay flat; the times of answers are shown",
        ("runs/test_soak.py",),
    ),
    Scenario(
        27,
        "SIGTERM, and SIGSTOP of 20 s, to each part; SIGKILL in tmux",
        "started again, or goes on; accounts exact; doctor names what is away",
        (
            _KILLED + "test_each_part_is_hit_once",
            "session/launchers/test_local.py"
            "::test_what_sigterm_ends_is_started_again_and_sigint_to_the_learner_ends_the_run",
            "session/launchers/test_serial.py::test_what_a_signal_ends_is_started_again",
        ),
        "agent replay learner ps eval tensorplex loggerplex",
    ),
)
