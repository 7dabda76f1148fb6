"""Client ids and tags become places of curves; a golden table, and ids that must not pass."""

import posixpath
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from session.errors import UsageError
from session.tensorplex.groups import (
    Place,
    check_client_id,
    check_tag,
    counts_rows,
    own_client_id,
    place,
    place_of_title,
)

GOLDEN = [
    ("learner/system", "reward", "learner", "system/reward", "system/reward"),
    ("learner/system", ":reward", "learner", "system.reward", "system.reward"),
    ("learner/system", ".core/lag_s", "learner", "system.core/lag_s", "system.core/lag_s"),
    ("agent/9", "reward", "agent-9", "agent/reward", "agent/reward:agent-9"),
    ("replay-left/0", ".core/size", "replay-left-0", "replay.core/size", None),
    ("agent/9", ":reward", "agent-9", "agent.reward", "agent.reward:agent-9"),
    ("agent/9", ".core/lag_s", "agent-9", "agent.core/lag_s", "agent.core/lag_s:agent-9"),
    ("agent/7", "a:b#c", "agent-7", "agent/a.b.c", "agent/a.b.c:agent-7"),
    ("agent/0", "hits@1", "agent-0", "agent/hits_1", None),
    ("agent/0", "speed (m/s)", "agent-0", "agent/speed _m/s_", None),
    ("learner/metrics", "share %/mean", "learner", "metrics/share _/mean", "metrics/share _/mean"),
    ("learner/metrics", "größe 2.0", "learner", "metrics/größe 2.0", "metrics/größe 2.0"),
    ("learner/metrics", "a//../b/", "learner", "metrics/a/_/b", "metrics/a/_/b"),
    ("agent/007", "x", "agent-7", "agent/x", "agent/x:agent-7"),
    ("eval/3", "return", "eval-3", "eval/return", "eval/return:eval-3"),
    ("learner/return", "train", "learner", "return/train", "return/train"),
    ("learner/core/net", "norm", "learner", "core/net/norm", "core/net/norm"),
    ("session/ps", "fetches", "session", "ps/fetches", "ps/fetches"),
]


@pytest.mark.parametrize(("client_id", "tag", "component", "key", "title"), GOLDEN)
def test_golden_places(
    client_id: str, tag: str, component: str, key: str, title: str | None
) -> None:
    found = place(client_id, tag)
    assert found == Place(component, key)
    assert found.title == (title or f"{key}:{component}")
    if component != "session":
        assert place_of_title(found.title) == found


@given(
    st.sampled_from(("agent/0", "learner/x", "client/a/b", "agent-left/0", "session/" + "p" * 190)),
    st.text(max_size=300),
)
@example("learner/x", "//")
@example("learner/x", "a" * 178 + "/..")
def test_every_name_of_a_curve_is_one_that_mlflow_takes(client_id: str, tag: str) -> None:
    try:
        found = place(client_id, tag)
    except UsageError:
        return
    # Rules of mlflow/utils/validation.py.
    assert re.fullmatch(r"[/\w.\- :]+", found.title)
    assert posixpath.normpath(found.title) == found.title
    assert not found.title.startswith(("/", ".."))
    assert len(found.title) <= 250


def test_only_curves_of_shards_count_rows() -> None:
    components = ("replay-0", "replay-left-0", "agent-0", "learner", "client-replayer-0")
    assert [counts_rows(each) for each in components] == [True, True, False, False, False]


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
    ("name", "tag", "component", "key"),
    [
        ("simulator/0", "fps", "client-simulator-0", "simulator/fps"),
        ("simulator/07", ":fps", "client-simulator-7", "simulator.fps"),
        ("simulator/left", "fps", "client-simulator-left", "left/fps"),
        ("baseline/return", "train", "client-baseline-return", "return/train"),
        ("a/b/c", "x", "client-a-b-c", "b/c/x"),
    ],
)
def test_scripts_are_components_of_their_own(name: str, tag: str, component: str, key: str) -> None:
    assert place(own_client_id(name), tag) == Place(component, key)


@pytest.mark.parametrize("client_id", ["client/simulator", "client/agent/0", "client/A/0"])
def test_other_names_of_scripts_are_refused(client_id: str) -> None:
    with pytest.raises(UsageError, match="client name"):
        place(client_id, "x")


def test_unknown_groups_and_names_in_a_counted_group_are_refused() -> None:
    with pytest.raises(
        UsageError, match="the groups are learner, session, agent, gateway, eval, replay"
    ):
        place("other/1", "x")
    with pytest.raises(UsageError, match="group agent counts its clients"):
        place("agent/one", "x")
