"""Messages of clients: golden frames and every field."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.addons.gateway.protocols import Encoding
from surreal_like.addons.gateway.messages import (
    Bye,
    Hello,
    Metrics,
    Ping,
    Protocol,
    Request,
    encode_spec,
)
from surreal_like.addons.gateway.payloads import Refusal, decode, encode
from tests.addons.gateway.test_payloads import GOLDEN, payload, plain

OBS = {"type": "float32", "dim": [4]}
DISCRETE = {"type": "discrete", "dim": [2]}
CONTINUOUS = {"type": "continuous", "dim": [2], "low": -1.0, "high": 1.0}
ONE = Protocol(OBS, DISCRETE)
FOUR = Protocol({"type": "float32", "dim": []}, DISCRETE, num_envs=4)
NESTED = Protocol({"image": {"type": "uint8", "dim": [2, 2]}, "goal": OBS}, CONTINUOUS)
PAIR = Protocol({"0": OBS, "1": {"type": "int64", "dim": [], "num": 5}}, DISCRETE)
HELLO = {"kind": "hello", "v": 1}
STEP = {"kind": "step", "seq": 2, "reward": 1.0, "observation": [1, 2, 3, 4]}
END = {"kind": "end", "seq": 2, "reward": 1.0}
PARTS = {"small": {"type": "float32", "dim": [2]}, "whole": {"type": "int64", "dim": []}}
BOX = {"type": "float32", "dim": [2], "low": -3e7, "high": [1.0, math.inf]}
FREE = {"type": "continuous", "dim": [1]}
LIMITED = Protocol({"parts": PARTS, "box": BOX}, FREE, rewards=(-1e6, 1e6))
LIMITED_FOUR = Protocol({"type": "float32", "dim": []}, DISCRETE, 4, rewards=(-1.0, 2e9))
INSIDE = {"parts": {"small": [1e6, -1e6], "whole": 1_000_000}, "box": [1.0, 1e6]}


MASKED = Protocol({"x": OBS, "action_mask": {"type": "bool", "dim": [2]}}, DISCRETE, 2)


def refused(protocol: Protocol, fields: dict[str, Any]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        protocol.parse(fields)
    return caught.value


@pytest.mark.parametrize("golden", GOLDEN, ids=[each["name"] for each in GOLDEN])
def test_golden_frames_are_read_and_written(golden: dict[str, Any]) -> None:
    fields, encoding = decode(payload(golden), None)
    assert plain(fields) == golden["json"]
    assert encoding is (Encoding.json if "JSON" in golden["name"] else Encoding.msgpack)
    if golden["from"] == "client":
        assert ONE.parse(fields) is not None
    else:
        assert encode(fields, Encoding.msgpack) == payload(golden)


@pytest.mark.parametrize("golden", GOLDEN, ids=[each["name"] for each in GOLDEN])
def test_the_same_message_in_json(golden: dict[str, Any]) -> None:
    fields, encoding = decode(json.dumps(golden["json"]).encode(), None)
    assert encoding is Encoding.json
    if golden["from"] == "client":
        first, second = ONE.parse(fields), ONE.parse(decode(payload(golden), None)[0])
        assert repr(first) == repr(second)


def test_hello_is_parsed() -> None:
    fields = {
        "token": "t",
        "mode": "act",
        "name": "a.B_c-9",
        "num_envs": 1,
        "client": "mine 1",
        "resume": "1.00ff",
        "unknown": [1],
    }
    assert ONE.parse({**HELLO, **fields}) == Hello(1, "t", "act", "a.B_c-9", 1, "mine 1", "1.00ff")
    assert ONE.parse({**HELLO, "v": 9}) == Hello(9, "", "", "", 1, "", "")


@pytest.mark.parametrize("version", [None, 0, -1, 1.0, True, "1", [1]])
def test_a_bad_version_is_refused(version: Any) -> None:
    refusal = refused(ONE, {"kind": "hello", "v": version})
    assert refusal.code == "bad_version"
    assert "here it is 1" in refusal.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "learn"),
        ("mode", 1),
        ("mode", ["train"]),
        ("name", "a b"),
        ("name", "a" * 65),
        ("name", 1),
        ("name", "../x"),
        ("num_envs", 0),
        ("num_envs", 1.0),
        ("num_envs", True),
        ("num_envs", "1"),
        ("token", 1),
        ("token", "a" * 257),
        ("client", {}),
        ("client", "a" * 257),
        ("resume", b"a"),
        ("resume", "a" * 257),
    ],
)
def test_a_bad_hello_is_refused(key: str, value: Any) -> None:
    refusal = refused(ONE, {**HELLO, key: value})
    assert refusal.code == "bad_hello"
    assert refusal.fatal
    assert key in refusal.text


def test_reset_and_step_are_parsed() -> None:
    reset = ONE.parse({"kind": "reset", "seq": 1, "observation": [1, 2, 3, 4]})
    assert isinstance(reset, Request)
    assert reset.obs.tolist() == [[1, 2, 3, 4]]
    assert reset.reward.tolist() == [0]
    step = ONE.parse({**STEP, "action": 1, "metrics": {"my/x": 2}})
    assert isinstance(step, Request)
    assert (step.kind, step.seq, step.reward.tolist()) == ("step", 2, [1.0])
    assert not step.terminated.any()
    assert not step.truncated.any()
    assert step.action is not None
    assert step.action.tolist() == [1]
    assert step.info == {"metrics": [{"my/x": 2.0}]}


def test_an_end_is_lost_terminated_or_truncated() -> None:
    lost, last, limit = (
        ONE.parse({**END, **more})
        for more in ({}, {"observation": [0] * 4}, {"observation": [0] * 4, "truncated": True})
    )
    assert isinstance(lost, Request)
    assert isinstance(last, Request)
    assert isinstance(limit, Request)
    assert lost.obs is None
    assert [each.terminated.tolist() for each in (lost, last, limit)] == [[True], [True], [False]]
    assert [each.truncated.tolist() for each in (lost, last, limit)] == [[False], [False], [True]]


def test_metrics_ping_and_bye_are_parsed() -> None:
    assert ONE.parse({"kind": "metrics", "values": {"a": 1}}) == Metrics({"a": 1.0})
    assert ONE.parse({"kind": "ping", "t": [1, "a"]}) == Ping([1, "a"])
    assert ONE.parse({"kind": "ping"}) == Ping(None)
    assert ONE.parse({"kind": "bye"}) == Bye()


@pytest.mark.parametrize("fields", [{}, {"kind": None}, {"kind": 1}, {"kind": ["step"]}])
def test_a_message_without_a_kind_is_none(fields: dict[str, Any]) -> None:
    refusal = refused(ONE, fields)
    assert (refusal.code, refusal.fatal) == ("malformed", True)
    assert refusal.text.endswith("expected a text: each message has one")


@pytest.mark.parametrize("kind", ["", "goodbye", "action", "__class__"])
def test_an_unknown_kind_is_refused(kind: Any) -> None:
    refusal = refused(ONE, {"kind": kind})
    assert refusal.code == "unknown_kind"
    assert not refusal.fatal
    assert "reset, step, end" in refusal.text


@pytest.mark.parametrize("seq", [None, 0, -1, 1.0, True, "1", 2**53, 10**400])
@pytest.mark.parametrize("kind", ["reset", "step", "end"])
def test_a_bad_seq_is_refused(kind: str, seq: Any) -> None:
    assert refused(ONE, {**STEP, "kind": kind, "seq": seq}).code == "bad_seq"


@pytest.mark.parametrize(
    "reward", [None, True, "1", [1.0], math.nan, math.inf, -math.inf, 1e39, 10**400, {}]
)
@pytest.mark.parametrize("kind", ["step", "end"])
def test_a_bad_reward_is_refused(kind: str, reward: Any) -> None:
    refusal = refused(ONE, {**STEP, "kind": kind, "reward": reward})
    assert refusal.code == "bad_reward"
    assert refusal.seq == 2


@pytest.mark.parametrize("value", [None, [1, 2, 3], "x", [1, 2, 3, math.nan], {"a": 1}])
@pytest.mark.parametrize("kind", ["reset", "step", "end"])
def test_a_bad_observation_is_refused(kind: str, value: Any) -> None:
    fields = {**STEP, "kind": kind, "observation": value, "truncated": True}
    refusal = refused(ONE, fields)
    assert refusal.code == "bad_observation"
    assert refusal.seq == 2
    assert refusal.text.startswith("observation: ")


@pytest.mark.parametrize("value", [None, 1, "true", 0.0])
def test_truncated_is_true_or_false(value: Any) -> None:
    assert "truncated is" in refused(ONE, {**END, "truncated": value}).text


@pytest.mark.parametrize("value", [2, -1, 0.5, True, [1], "1", np.array(1.0)])
@pytest.mark.parametrize("kind", ["step", "end"])
def test_a_bad_action_is_refused(kind: str, value: Any) -> None:
    assert refused(ONE, {**STEP, "kind": kind, "action": value}).code == "bad_action"


def test_an_action_outside_of_its_bounds_is_refused() -> None:
    fields = {**END, "truncated": False, "action": [0.0, 1.5]}
    assert "expected at most" in refused(NESTED, fields).text


@pytest.mark.parametrize(
    "values",
    [
        None,
        1,
        [],
        {str(i): 1 for i in range(65)},
        {"": 1},
        {"a b": 1},
        {"../a": 1},
        {"/a": 1},
        {"a//b": 1},
        {"a" * 201: 1},
        {"a": "1"},
        {"a": True},
        {"a": math.nan},
        {"a": math.inf},
        {"a": 10**400},
        {"a": [1]},
    ],
)
def test_a_bad_metric_is_refused(values: Any) -> None:
    assert refused(ONE, {"kind": "metrics", "values": values}).code == "bad_metric"
    if values is not None:
        assert refused(ONE, {**STEP, "metrics": values}).code == "bad_metric"


@pytest.mark.parametrize(
    "token",
    ["a" * 64, list(range(70)), {"a": "b" * 64}, np.zeros(99), math.inf, [{"a": math.nan}]],
)
def test_a_ping_is_short(token: Any) -> None:
    assert refused(ONE, {"kind": "ping", "t": token}).code == "malformed"


def test_a_nested_observation_has_all_keys_and_no_others() -> None:
    obs = {"image": [[1, 2], [3, 4]], "goal": [0, 0, 0, 0]}
    request = NESTED.parse({"kind": "reset", "seq": 1, "observation": obs})
    assert isinstance(request, Request)
    assert request.obs["image"].tolist() == [[[1, 2], [3, 4]]]
    for wrong in ({"image": obs["image"]}, {**obs, "more": 1}, [obs], None):
        refusal = refused(NESTED, {"kind": "reset", "seq": 1, "observation": wrong})
        assert "expected the keys image, goal" in refusal.text
    refusal = refused(
        NESTED, {"kind": "reset", "seq": 1, "observation": {**obs, "image": [[1, 2], [3, 256]]}}
    )
    assert refusal.text == "observation/image: a number that uint8 cannot hold"


def test_a_tuple_has_the_keys_0_and_1() -> None:
    request = PAIR.parse(
        {"kind": "reset", "seq": 1, "observation": {"1": 4, "0": np.zeros(4, np.float32)}}
    )
    assert isinstance(request, Request)
    assert isinstance(request.obs, tuple)
    assert request.obs[1].tolist() == [4]


def test_several_environments_share_one_message() -> None:
    fields = {
        "kind": "step",
        "seq": 2,
        "observation": [1, 2, 3, 4],
        "reward": [0, 0.5, 1, 0],
        "terminated": [0, 1, 0, 0],
        "truncated": [False, False, True, False],
    }
    request = FOUR.parse(fields)
    assert isinstance(request, Request)
    assert request.obs.tolist() == [1, 2, 3, 4]
    assert request.reward.tolist() == [0, 0.5, 1, 0]
    assert request.terminated.tolist() == [False, True, False, False]
    assert refused(FOUR, {**fields, "reward": 1.0}).code == "bad_reward"
    assert refused(FOUR, {**fields, "terminated": None}).code == "bad_observation"
    assert refused(FOUR, {**fields, "observation": [1]}).code == "bad_observation"
    assert refused(FOUR, {**fields, "kind": "end"}).code == "wrong_state"


def test_the_limit_of_a_message_covers_an_observation_in_any_form() -> None:
    pixels = np.full((84, 84, 4), 255, np.uint8)
    protocol = Protocol({"type": "uint8", "dim": [84, 84, 4]}, DISCRETE)
    assert protocol.max_message_bytes == (1 << 16) + 2 * pixels.nbytes + 32 * pixels.size
    for value in (pixels, pixels.tolist(), plain(pixels)):
        data = json.dumps({**STEP, "observation": plain(value)}).encode()
        assert len(data) <= protocol.max_message_bytes


def test_infinite_bounds_are_null() -> None:
    spec = {"a": {"type": "float32", "dim": [2], "low": [-math.inf, 0.0], "high": math.inf}}
    assert encode_spec(spec) == {
        "a": {"type": "float32", "dim": [2], "low": [None, 0.0], "high": None}
    }


@given(
    st.dictionaries(
        st.sampled_from([*STEP, *HELLO, "t", "values", "truncated"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63)
            | st.floats()
            | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
            max_leaves=8,
        ),
    ),
    st.sampled_from(["hello", "reset", "step", "end", "metrics", "ping", "bye"]),
)
def test_any_message_is_parsed_or_refused(fields: dict[str, Any], kind: str) -> None:
    for protocol in (ONE, FOUR, NESTED, PAIR):
        with suppress(Refusal):
            protocol.parse(decode(encode({**fields, "kind": kind}, Encoding.msgpack), None)[0])


def limited_step(where: str, value: Any) -> dict[str, Any]:
    """A step with another value at one place of its observation, or in another field."""
    fields = {**json.loads(json.dumps(STEP)), "observation": json.loads(json.dumps(INSIDE))}
    fields["action"] = [0.5]
    *path, last = where.split(".")
    holder = fields
    for key in path:
        holder = holder[key]
    holder[last] = value
    return fields


@pytest.mark.parametrize(
    ("where", "value", "code"),
    [
        ("observation.parts.small", [0.0, 1.1e6], "bad_observation"),
        ("observation.parts.small", np.array([0.0, -1e30], np.float32), "bad_observation"),
        ("observation.parts.whole", 1_000_001, "bad_observation"),
        ("observation.parts.whole", np.array(-(2**63), np.int64), "bad_observation"),
        ("observation.box", [1.5, 0.0], "bad_observation"),
        ("observation.box", [0.0, 2e6], "bad_observation"),
        ("reward", 1e12, "bad_reward"),
        ("reward", -1_000_001, "bad_reward"),
        ("action", [-2e6], "bad_action"),
    ],
)
def test_numbers_beyond_their_bounds_are_refused(where: str, value: Any, code: str) -> None:
    refusal = refused(LIMITED, limited_step(where, value))
    assert (refusal.code, refusal.fatal) == (code, False)
    assert "expected" in refusal.text


def test_numbers_within_their_bounds_are_not() -> None:
    for where, value in (("reward", -1e6), ("action", [1e6]), ("observation.box", [-3e7, -5e5])):
        assert isinstance(LIMITED.parse(limited_step(where, value)), Request)
    rewards = {**STEP, "reward": [-1.0, 0.0, 1.0, 2e9], "terminated": [0] * 4, "truncated": [0] * 4}
    assert isinstance(LIMITED_FOUR.parse(rewards), Request)
    assert refused(LIMITED_FOUR, {**rewards, "reward": [0.0, 0.0, -1.5, 0.0]}).code == "bad_reward"


def test_where_nothing_is_learned_numbers_have_wide_bounds() -> None:
    assert isinstance(ONE.parse({**STEP, "reward": 1e17, "observation": [-1e17] * 4}), Request)
    # A network makes infinity and NaN of it, and an action of these.
    assert refused(ONE, {**STEP, "observation": [3e38] * 4}).code == "bad_observation"
    assert refused(ONE, {**STEP, "reward": 3e38}).code == "bad_reward"


@pytest.mark.parametrize("name", ["terminated", "truncated"])
@pytest.mark.parametrize("value", [True, 1, 0, "yes", [True], np.array([True])])
def test_a_step_of_one_environment_ends_no_episode(name: str, value: Any) -> None:
    found = refused(ONE, {**STEP, name: value})
    assert (found.code, found.fatal) == ("wrong_state", False)
    assert f"{name} is " in found.text
    assert "send end where the episode ends" in found.text
    for fine in (False, None):
        assert isinstance(ONE.parse({**STEP, name: fine}), Request)


@given(st.binary(max_size=200), st.sampled_from([b"", b"{", b"\x81\xa1a", b"\x82\xa4kind\xa4step"]))
def test_any_bytes_are_decoded_or_malformed(data: bytes, start: bytes) -> None:
    with suppress(Refusal):
        ONE.parse(decode(start + data, None)[0])


@pytest.mark.parametrize("kind", ["reset", "step"])
def test_a_mask_without_a_legal_action_is_refused(kind: str) -> None:
    mask = [[True, False], [False, False]]
    flags = {"terminated": [False, False], "truncated": [False, False], "reward": [0.0, 0.0]}
    obs = {"x": [[0.0] * 4] * 2, "action_mask": mask}
    fields = {"kind": kind, "seq": 2, "observation": obs, **(flags if kind == "step" else {})}
    found = refused(MASKED, fields)
    assert found.code == "bad_observation"
    assert "in stream 1 leaves no legal action" in str(found)
    # Nothing need be legal where an episode ends.
    ended = {**fields, **flags, "kind": "step", "terminated": [False, True]}
    assert isinstance(MASKED.parse(ended), Request)
