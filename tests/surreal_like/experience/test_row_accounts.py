"""RowAccounts: every row is counted once, whatever dies."""

import json
from typing import Any

import pytest

from surreal_like.experience.row_accounts import (
    UNLEARNED,
    RowAccounts,
    RowFates,
    describe_too_old,
)


def said(pushed: int, inserted: int, dropped: int = 0, *, final: bool = False) -> dict[str, Any]:
    return {
        "pushed": pushed,
        "inserted": inserted,
        "dropped": dropped,
        "unacked": pushed - inserted - dropped,
        "env_steps": pushed,
        "episodes": pushed // 10,
        "final": final,
    }


def counts(sampled: int = 0, **senders: dict[str, Any]) -> dict[str, Any]:
    return {"sampled": sampled, "senders": {k.replace("__", "/"): v for k, v in senders.items()}}


def saw(
    rows: int,
    inserted: int,
    *,
    base: int = 0,
    dropped: int = 0,
    holes: int = 0,
    guest: bool = False,
) -> dict[str, Any]:
    return {
        "rows": rows,
        "base": base,
        "inserted": inserted,
        "dropped": dropped,
        "holes": holes,
        "env_steps": rows,
        "episodes": rows // 10,
        "guest": guest,
    }


def test_a_sender_that_said_leave_counts_as_it_counted() -> None:
    accounts = RowAccounts()
    accounts.add_shard("replay-0/1", counts(agent__1=saw(100, 90, dropped=10)))
    accounts.add_sender("agent/1", said(100, 90, 10, final=True))
    assert accounts.rows() == RowFates(100, 90, 10, 0, 0)


def shard(added: int, stored: int, restored: int = 0, goes_on: bool = False) -> dict[str, Any]:
    return {**counts(agent__1=saw(added, added)), "added": added, "size": stored} | {
        "restored": restored,
        "goes_on": goes_on,
    }


def restored(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    return {**now, "before": {"replay-0/1": then}}


LOST: list[tuple[list[tuple[str, dict[str, Any]]], int, int]] = [
    # Shards that live, or have evicted rows, have lost nothing.
    ([("replay-0/1", shard(100, 60)), ("replay-1/1", shard(80, 80))], 180, 0),
    # A successor begins empty, with what the newest report of its predecessor says.
    ([("replay-0/1", shard(90, 90)), ("replay-0/1", shard(100, 60)), ("replay-0/2", shard(7, 7))],
     107, 60),
    # 20 rows were inserted after the last report; 30 were sent again, because they had no ack.
    ([("replay-0/1", shard(100, 100)), ("replay-0/2", shard(50, 50))], 170, 120),
    ([("replay-0/1", shard(100, 100)), ("replay-0/2", shard(50, 50))], 120, 70),
    # Restored, and not all of it; a third one restores nothing.
    ([("replay-0/1", shard(100, 80)), ("replay-0/2", shard(50, 120, 75))], 150, 5),
    ([("replay-0/1", shard(100, 80)), ("replay-0/2", shard(50, 130, 80)),
      ("replay-0/10", shard(1, 1))], 151, 130),
    # From memory: all rows of before, also 20 after the last report, when as many were evicted.
    ([("replay-0/1", shard(100, 80)), ("replay-0/2", shard(170, 80, 80, True))], 170, 0),
    ([("replay-0/1", shard(100, 80)), ("replay-0/2", shard(170, 80, 80, True)),
      ("replay-0/3", shard(200, 80, 80, True))], 200, 0),
    # Then without: a queue that begins anew.
    ([("replay-0/1", shard(100, 80)), ("replay-0/2", shard(170, 80, 80, True)),
      ("replay-0/3", shard(5, 5))], 175, 80),
    # One of two shards has died twice.
    ([("replay-0/1", shard(10, 10)), ("replay-1/1", shard(40, 40)), ("replay-0/2", shard(5, 5)),
      ("replay-0/3", shard(0, 0))], 55, 15),
    # From a snapshot: all rows of then, also 20 after the last report, when as many were evicted.
    ([("replay-0/1", shard(100, 80)), ("replay-0/2", restored(shard(50, 80, 80), shard(120, 80)))],
     170, 0),
    # It was saved before the last report.
    ([("replay-0/1", shard(100, 80)), ("replay-0/2", restored(shard(50, 110, 60), shard(60, 60)))],
     150, 20),
]  # fmt: skip


@pytest.mark.parametrize(("reports", "inserted", "lost"), LOST)
def test_rows_of_a_shard_that_died_are_counted(
    reports: list[tuple[str, dict[str, Any]]], inserted: int, lost: int
) -> None:
    accounts = RowAccounts()
    for key, report in reports:
        accounts.add_shard(key, report)
    accounts.add_sender("agent/1", said(inserted, inserted, final=True))
    assert accounts.lost() == lost
    resumed = RowAccounts()
    resumed.restore(json.loads(json.dumps(accounts.state())))
    assert resumed.lost() == lost
    resumed.restore({k: v for k, v in accounts.state().items() if k != "shards"})
    assert resumed.lost() == 0


def test_the_end_of_a_shard_says_how_many_rows_ended_with_it() -> None:
    accounts = RowAccounts()
    assert accounts.add_shard("replay-0/1", shard(100, 80)) == 0
    assert accounts.add_shard("replay-1/2", shard(100, 100)) == 0
    assert accounts.add_shard("replay-0/2", shard(0, 75, 75)) == 5
    assert accounts.add_shard("replay-0/2", shard(9, 84, 75)) == 0
    assert accounts.add_shard("replay-0/3", shard(20, 84, 84, True)) == 0
    assert accounts.add_shard("replay-0/12", shard(0, 0)) == 84


@pytest.mark.parametrize("goes_on", [True, False], ids=["memory", "snapshot"])
def test_rows_of_a_joined_agent_count_once_where_a_ledger_goes_on(goes_on: bool) -> None:
    accounts = joined(saw(60, 60))
    of = {"senders": {JOINED: saw(65, 5, base=60, guest=True)}}
    accounts.add_shard("replay-1/1", {**shard(0, 5), **of})
    on = {"senders": {JOINED: saw(75, 70, base=5, guest=True)}}
    for _ in range(2):
        accounts.add_shard("replay-0/2", {**shard(0, 70, 60, goes_on), "ledger": 1, **on})
    assert accounts.senders[JOINED].bound == 75


def test_an_older_account_never_takes_back_a_newer_one() -> None:
    accounts = RowAccounts()
    accounts.add_sender("agent/1", said(200, 150))
    accounts.add_sender("agent/1", said(100, 50))
    assert accounts.senders["agent/1"].pushed == 200


def test_steps_of_a_living_sender_count_from_its_chunks_until_its_leave() -> None:
    accounts = RowAccounts()
    accounts.add_sender("agent/1", said(80, 50))
    assert (accounts.env_steps, accounts.episodes) == (0, 0)
    accounts.add_shard("replay-0/1", counts(agent__1=saw(60, 60)))
    assert (accounts.env_steps, accounts.episodes) == (60, 6)
    accounts.add_sender("agent/1", said(100, 100, final=True))
    assert (accounts.env_steps, accounts.episodes) == (100, 10)


def test_a_killed_sender_ends_with_the_last_header_seen() -> None:
    accounts = RowAccounts()
    accounts.add_sender("agent/1", said(80, 50))
    accounts.add_shard("replay-0/1", counts(agent__1=saw(100, 100)))
    accounts.add_sender("agent/2", said(10, 10, final=True))
    assert accounts.rows() == RowFates(110, 110, 0, 0, 0)
    assert accounts.killed == 1


def test_a_restarted_replay_counts_on_from_what_the_one_before_had_handled() -> None:
    accounts = RowAccounts()
    accounts.add_shard("replay-0/1", counts(sampled=7, agent__1=saw(60, 55, dropped=5)))
    accounts.add_sender("agent/1", said(60, 55, 5))
    accounts.add_shard("replay-0/2", counts(sampled=4, agent__1=saw(100, 40, base=60)))
    rows = accounts.rows()
    assert rows == RowFates(100, 95, 5, 0, 0)
    assert rows.pushed == rows.inserted + rows.dropped + rows.holes + rows.unacked
    assert accounts.sampled == 11


def test_holes_of_a_killed_sender_stand_beside_what_was_inserted() -> None:
    accounts = RowAccounts()
    accounts.add_shard("replay-0/1", counts(agent__1=saw(100, 70, holes=30)))
    assert accounts.rows() == RowFates(100, 70, 0, 0, 30)


def test_a_hole_that_was_filled_is_none() -> None:
    accounts = RowAccounts()
    accounts.add_shard("replay-0/1", counts(agent__1=saw(100, 70, holes=30)))
    accounts.add_shard("replay-0/1", counts(agent__1=saw(100, 100)))
    assert accounts.rows() == RowFates(100, 100, 0, 0, 0)


def test_rows_seen_by_a_dead_replay_and_not_handled_by_its_successor_are_missing() -> None:
    accounts = RowAccounts()
    accounts.add_shard("replay-0/1", counts(agent__1=saw(100, 70, holes=30)))
    accounts.add_shard("replay-0/2", counts(agent__1=saw(80, 10, base=70)))
    assert accounts.rows() == RowFates(100, 80, 0, 0, 20)


def test_state_round_trip() -> None:
    accounts = RowAccounts()
    accounts.add_shard("replay-0/1", counts(sampled=7, agent__1=saw(60, 55, dropped=5)))
    accounts.add_sender("agent/1", said(60, 50, 5))
    again = RowAccounts()
    again.restore(accounts.state())
    assert again.rows() == accounts.rows()
    assert (again.sampled, again.env_steps, again.episodes) == (7, 60, 6)


@pytest.mark.parametrize("kills", range(4))
def test_killed_counts_only_replaced_incarnations(kills: int) -> None:
    accounts = RowAccounts()
    for incarnation in range(kills + 1):
        accounts.add_sender(f"agent-0/{incarnation}", said(1, 1))
    assert accounts.killed == kills


JOINED = "agent-1000/1"


def joined(seen: dict[str, Any], account: dict[str, Any] | None = None) -> RowAccounts:
    """The accounts of a run to which one machine has sent rows."""
    accounts = RowAccounts()
    accounts.add_shard("replay-0/1", {"sampled": 0, "senders": {JOINED: {**seen, "guest": True}}})
    if account is not None:
        accounts.add_sender(JOINED, account)
    return accounts


def test_an_honest_joined_agent_counts_like_any_other() -> None:
    accounts = joined(saw(100, 90, dropped=10), said(100, 90, 10, final=True))
    assert accounts.rows() == RowFates(100, 90, 10, 0, 0)
    assert (accounts.env_steps, accounts.episodes) == (100, 10)
    left = joined(saw(100, 90, dropped=10), said(120, 90, 10, final=True))
    assert left.rows() == RowFates(120, 90, 10, 20, 0)


def test_a_joined_agent_counts_no_more_steps_than_replay_received_rows() -> None:
    seen = {**saw(99_017_461, 40, base=99_017_421), "episodes": 10**9}
    for account in (None, said(99_017_461, 99_017_461), said(10**8, 10**8, final=True)):
        accounts = joined(seen, account)
        assert (accounts.env_steps, accounts.episodes) == (40, 40)
        assert accounts.rows() == RowFates(40, 40, 0, 0, 0)
    # Its own agents count themselves, as before.
    own = RowAccounts()
    own.add_sender("agent-999/1", said(100, 100, final=True))
    assert own.env_steps == 100


def test_rows_of_a_joined_agent_at_two_shards_and_after_a_restart_add_up() -> None:
    accounts = joined(saw(60, 60))
    accounts.add_shard("replay-0/2", {"sampled": 0, "senders": {JOINED: saw(80, 20, base=60)}})
    accounts.add_shard("replay-1/1", {"sampled": 0, "senders": {JOINED: saw(100, 20, base=80)}})
    assert accounts.env_steps == 100
    again = RowAccounts()
    again.restore(accounts.state())
    assert again.env_steps == 100


def test_totals_of_gateways_add_up_over_their_incarnations() -> None:
    accounts = RowAccounts()
    accounts.add_sender("agent-0/1", said(10, 10))
    assert accounts.clients() == {}
    for key, sessions in (("gateway-0/1", 2), ("gateway-0/1", 3), ("gateway-0/2", 4)):
        accounts.add_sender(key, said(10, 10) | {"clients": {"sessions": sessions, "refused": 1}})
    again = RowAccounts()
    again.restore(accounts.state())
    assert again.clients() == accounts.clients() == {"sessions": 7, "refused": 2}


def test_rows_are_reported_by_name() -> None:
    accounts = joined(saw(40, 40))
    accounts.add_sender("agent-0/1", said(100, 90, 10, final=True))
    accounts.add_sender("agent-0/2", said(10, 10, final=True))
    found = accounts.by_name()
    assert list(found) == ["agent-0", "agent-1000"]
    assert found["agent-0"] == {**RowFates(110, 100, 10)._asdict(), "env_steps": 110}
    assert found["agent-1000"] == {**RowFates(40, 40)._asdict(), "env_steps": 40}


def test_restarts_of_environments_add_up_over_incarnations() -> None:
    accounts = RowAccounts()
    for key, restarts in (("agent/1", 2), ("agent/1", 5), ("agent/2", 1)):
        accounts.add_sender(key, said(10, 10) | {"env_restarts": restarts})
    accounts.add_sender("other/1", said(10, 10))
    again = RowAccounts()
    again.restore(json.loads(json.dumps(accounts.state())))
    assert again.env_restarts == accounts.env_restarts == 6


def test_a_joined_agent_forges_no_totals() -> None:
    accounts = RowAccounts()
    forged = {"env_restarts": 10**9, "clients": {"sessions": 10**9}}
    accounts.add_sender("agent-1000/1", said(10, 10) | forged | {"guest": True})
    assert (accounts.env_restarts, accounts.clients()) == (0, {})


def test_rows_that_were_rolled_back_count_once_where_a_shard_goes_on() -> None:
    accounts = RowAccounts()
    accounts.add_shard("replay-0/1", {**shard(100, 70), "rolled_back": 30})
    accounts.add_shard("replay-1/1", {**shard(100, 95), "rolled_back": 5})
    accounts.add_shard("replay-0/2", {**shard(100, 70, 70, True), "rolled_back": 30})
    assert accounts.rolled_back == 35
    accounts.add_shard("replay-0/3", {**shard(9, 7), "rolled_back": 2})
    assert accounts.rolled_back == 37
    resumed = RowAccounts()
    resumed.restore(json.loads(json.dumps(accounts.state())))
    assert resumed.rolled_back == 37
    # Records of before have not counted them.
    older = {**accounts.state(), "shards": {"replay-0/1": [0, 100, 70, False]}}
    resumed.restore(older)
    assert resumed.rolled_back == 0


def queue(**fates: int) -> dict[str, Any]:
    return {**shard(100, 0), "unlearned": fates}


def test_rows_that_no_learner_was_given_add_up_over_restarts_and_by_policy() -> None:
    accounts = RowAccounts()
    accounts.add_shard("replay-left-0/1", queue(too_old=10, waiting=6))
    accounts.add_shard("replay-left-0/1", queue(too_old=12, waiting=8))
    accounts.add_shard("replay-left-0/2", queue(too_old=3, overflowed=1, waiting=2))
    accounts.add_shard("replay-right-0/1", queue(fenced=5, waiting=4))
    accounts.add_shard("replay-wide-0/1", shard(100, 80))
    resumed = RowAccounts()
    resumed.restore(json.loads(json.dumps(accounts.state())))
    none = dict.fromkeys(UNLEARNED, 0)
    for each in (accounts, resumed):
        assert each.count_unlearned("left") == {
            **none,
            "too_old": 15,
            "overflowed": 1,
            "waiting": 2,
        }
        assert each.count_unlearned("wide") == none
        assert each.count_unlearned() == {
            **none, "too_old": 15, "overflowed": 1, "fenced": 5, "waiting": 6
        }  # fmt: skip
    resumed.restore({k: v for k, v in accounts.state().items() if k != "unlearned"})
    assert resumed.count_unlearned() == none


@pytest.mark.parametrize(
    ("too_old", "policies", "said"),
    [
        (0, {}, ""),
        (10, {}, ""),
        (11, {}, "11 of 1,000 rows (1 %)"),
        (10, {"left": (10, 20)}, "10 of 20 rows of policy left (50 %)"),
    ],
)
def test_rows_that_were_too_old_are_described_from_one_percent_on(
    too_old: int, policies: dict[str, tuple[int, int]], said: str
) -> None:
    def experience(gone: int, inserted: int) -> dict[str, Any]:
        return {"experience": {"too_old": gone, "inserted": inserted}}

    parts = {name: experience(*each) for name, each in policies.items()}
    assert describe_too_old({**experience(too_old, 1000), "policies": parts}) == said
