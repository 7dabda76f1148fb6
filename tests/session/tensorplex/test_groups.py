"""Client ids and tags become folders and curves; a golden table, and ids that must not pass."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from session.errors import UsageError
from session.tensorplex.groups import (
    Group,
    Groups,
    check_client_id,
    check_tag,
    own_client_id,
    standard_groups,
)

GOLDEN = [
    ("learner/system", "reward", "learner", "system/reward"),
    ("learner/system", ":reward", "learner", "system.reward"),
    ("learner/system", ".core/lag_s", "learner", "system.core/lag_s"),
    ("agent/9", "reward", "agent/9", "agent/reward/8-15"),
    ("replay-left/0", ".core/size", "replay-left/0", "replay.core/size"),
    ("agent/9", ":reward", "agent/9", "agent.reward/8-15"),
    ("agent/9", ".core/lag_s", "agent/9", "agent.core/lag_s/8-15"),
    ("agent/7", "a:b#c", "agent/7", "agent/a.b.c/0-7"),
    ("eval/3", "return", "eval/3", "eval/return/3"),
    ("replay/9", "size", "replay/9", "replay/size"),
    ("learner/return", "train", "learner", "return/train"),
    ("learner/steps_per_second", "env", "learner", "steps_per_second/env"),
    ("learner/core/net", "norm", "learner", "core/net/norm"),
    ("session/ps", "fetches", "session", "ps/fetches"),
]


@pytest.mark.parametrize(("client_id", "tag", "folder", "key"), GOLDEN)
def test_golden_keys_and_folders(client_id: str, tag: str, folder: str, key: str) -> None:
    groups = (
        Groups()
        .register_normal_group("learner")
        .register_normal_group("session")
        .register_indexed_group("agent", 8)
        .register_indexed_group("eval", 1)
        .register_indexed_group("replay")
    )
    assert groups.place(client_id, tag) == Group(folder, key)


def test_standard_groups_share_one_bin_size() -> None:
    groups = standard_groups(9)
    keys = {groups.place(f"{group}/17", "x").tag for group in ("agent", "eval", "replay")}
    assert keys == {"agent/x/16-23", "eval/x/16-23", "replay/x/16-23"}


@pytest.mark.parametrize(("planned", "tag"), [(8, "agent/x"), (9, "agent/x/0-7")])
def test_bins_are_decided_by_the_planned_agents(planned: int, tag: str) -> None:
    assert standard_groups(planned).place("agent/0", "x").tag == tag


UNSAFE = [
    "agent",
    "agent/",
    "/agent/0",
    "agent//0",
    "agent/..",
    "../agent/0",
    "agent/../../0",
    "agent/.hidden",
    "agent/0\n",
    "agent\\0/1",
    "agent/\u00e4",
    "agent/" + "9" * 300,
    None,
    7,
]


@pytest.mark.parametrize("client_id", UNSAFE)
def test_unsafe_ids_are_refused(client_id: object) -> None:
    with pytest.raises(UsageError, match="metrics client id"):
        check_client_id(client_id)


@given(st.text("ab0._-/\\ \n", max_size=12).map(lambda text: f"agent/{text}"))
@example("agent/a..b")
def test_no_accepted_id_leaves_the_root(client_id: str) -> None:
    try:
        check_client_id(client_id)
    except UsageError:
        return
    parts = client_id.split("/")
    assert len(parts) >= 2
    assert all(re.match(r"[a-z0-9_]", part) for part in parts)


@pytest.mark.parametrize("tag", ["", "  ", ".", ":#", "a\nb", "a\ud800", "x" * 301, None, 3])
def test_tags_that_name_no_curve_are_refused(tag: object) -> None:
    with pytest.raises(UsageError, match="metric tag"):
        check_tag(tag)


@pytest.mark.parametrize(
    ("name", "tag", "folder", "key"),
    [
        ("simulator/0", "fps", "simulator/0", "simulator/fps"),
        ("simulator/07", ":fps", "simulator/7", "simulator.fps"),
        ("simulator/left", "fps", "simulator", "left/fps"),
        ("baseline/return", "train", "baseline", "return/train"),
        ("a/b/c", "x", "a", "b/c/x"),
    ],
)
def test_scripts_have_groups_of_their_own(name: str, tag: str, folder: str, key: str) -> None:
    groups = standard_groups(9)
    assert groups.place(own_client_id(name), tag) == Group(folder, key)


@pytest.mark.parametrize("client_id", ["client/simulator", "client/agent/0", "client/A/0"])
def test_other_names_of_scripts_are_refused(client_id: str) -> None:
    with pytest.raises(UsageError, match="client name"):
        standard_groups(0).place(client_id, "x")


def test_unknown_groups_and_names_in_a_counted_group_are_refused() -> None:
    groups = standard_groups(0)
    with pytest.raises(
        UsageError, match="the groups are learner, session, agent, gateway, eval, replay"
    ):
        groups.place("other/1", "x")
    with pytest.raises(UsageError, match="group agent counts its clients"):
        groups.place("agent/one", "x")


def test_one_client_has_one_folder_however_its_number_is_written() -> None:
    assert standard_groups(0).place("agent/007", "x").folder == "agent/7"
