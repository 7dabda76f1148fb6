"""Lag in versions and updates, and the way of traced experience."""

import numpy as np
import pytest

from surreal_like.coordinator.lag import Lag
from surreal_like.learner.worker import fresh_versions


def test_lag_counts_versions_and_updates() -> None:
    lag = Lag()
    for version, iteration in [(1, 0), (2, 10), (3, 20)]:
        lag.add_publication(version, iteration)
    lag.add_batch(np.array([3, 3, 1, 1], np.int64), 25)
    summary = lag.summary()
    assert summary == {"mean_versions": 1.0, "max_versions": 2, "mean_updates": 15.0}


def test_recent_lag_is_that_of_the_batches_since_the_last_question() -> None:
    lag = Lag()
    lag.add_publication(1, 0)
    lag.add_publication(5, 10)
    lag.add_batch(np.array([1, 1], np.int64), 10)
    assert lag.pop_recent() == {"mean_versions": 4.0, "max_versions": 4, "mean_updates": 10.0}
    assert set(lag.pop_recent().values()) == {None}
    lag.add_batch(np.array([5, 5], np.int64), 10)
    assert lag.pop_recent()["max_versions"] == 0
    assert lag.summary() == {"mean_versions": 2.0, "max_versions": 4, "mean_updates": 5.0}


def test_the_lag_of_a_run_is_that_of_the_rows_of_all_policies() -> None:
    whole = Lag()
    left, right = Lag(whole), Lag(whole)
    for lag, versions in ((left, (1, 3)), (right, (1, 11))):
        for version in versions:
            lag.add_publication(version, version)
    left.add_batch(np.array([1], np.int64), 3)
    right.add_batch(np.array([1, 11, 11], np.int64), 11)
    assert left.summary()["mean_versions"] == 2.0
    assert right.pop_recent()["mean_versions"] == pytest.approx(10 / 3)
    assert whole.pop_recent() == {"mean_versions": 3.0, "max_versions": 10, "mean_updates": 3.0}
    assert whole.summary()["max_versions"] == 10


def test_a_version_that_is_known_is_not_added_again() -> None:
    lag = Lag()
    for version, iteration in [(1, 0), (3, 20), (3, 25)]:
        lag.add_publication(version, iteration)
    lag.add_batch(np.array([3], np.int64), 20)
    assert lag.summary()["mean_updates"] == 0.0


def test_streams_that_were_replayed_are_left_out() -> None:
    versions = np.array([[5, 1, 5], [6, 1, 5]], np.int64)
    replayed = np.array([False, True, False])
    fresh = fresh_versions({"version": versions, "replayed": replayed})
    assert fresh.tolist() == [[5, 5], [6, 5]]
    assert fresh_versions({"version": versions}) is versions
    lag = Lag()
    lag.add_publication(6, 0)
    lag.add_batch(fresh, 0)
    assert lag.summary()["max_versions"] == 1


def test_rows_of_a_version_from_the_future_have_no_lag() -> None:
    lag = Lag()
    lag.add_publication(5, 0)
    lag.add_batch(np.array([9], np.int64), 0)
    assert lag.summary()["mean_versions"] == 0


def test_nothing_is_said_before_the_first_batch() -> None:
    assert set(Lag().summary().values()) == {None}


def test_the_way_is_the_mean_between_stamps() -> None:
    lag = Lag()
    lag.add_stamps({"first": 1.0, "cut": 2.0, "sent": 2.5, "inserted": 3.0})
    lag.add_stamps({"first": 1.0, "cut": 4.0})
    way = lag.latency()
    assert way["collect_seconds"] == pytest.approx(2.0)
    assert way["wait_to_send_seconds"] == pytest.approx(0.5)
    assert "in_replay_seconds" not in way
    lag.add_stamps({"first": 1.0, "stepped": 1.75, "cut": 2.0, "requested": 5.0, "received": 5.5})
    way = lag.latency()
    assert (way["step_seconds"], way["act_seconds"]) == (0.75, 0.25)
    assert way["request_seconds"] == 0.5


def test_state_round_trip() -> None:
    lag, again = Lag(), Lag()
    lag.add_publication(2, 10)
    lag.add_batch(np.array([1], np.int64), 12)
    lag.add_stamps({"first": 1.0, "cut": 2.0})
    again.restore(lag.state())
    assert again.summary() == lag.summary()
    assert again.latency() == lag.latency()


def test_recorded_rows_have_no_lag() -> None:
    """Their version is 0: no parameters of the run have acted in them."""
    whole = Lag()
    lag = Lag(whole)
    for version, iteration in [(1, 0), (2, 10), (3, 20)]:
        lag.add_publication(version, iteration)
    lag.add_batch(np.zeros(4, np.int64), 25)
    assert set(lag.summary().values()) == set(whole.summary().values()) == {None}
    lag.add_batch(np.array([[0, 3], [1, 0]], np.int64), 25)
    assert lag.summary() == {"mean_versions": 1.0, "max_versions": 2, "mean_updates": 15.0}
