"""The log client: records as plain data, filtered and stamped at the source."""

import gc
import logging
import weakref
from typing import Any

import msgpack
import numpy as np
import pytest

from session.errors import ConfigError
from session.loggerplex.log_client import Log, early_log, make_log
from session.wire.telemetry_buffer import Channel
from tests.clock import HandClock


class Kept(Channel):
    """A channel whose records can be looked at."""

    def __init__(self) -> None:
        super().__init__(None, "loggerplex", buffer=100)

    def records(self) -> list[dict[str, Any]]:
        records = [record for record, _ in self._records]
        assert msgpack.packb(records)
        return records

    def only(self) -> dict[str, Any]:
        [record] = self.records()
        return record


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def log(kept: Kept) -> Log:
    return make_log("agent-0", kept, level="info", clock=HandClock(12.5))


def test_a_record_has_time_level_component_and_text(log: Log, kept: Kept) -> None:
    log.warning("lag is %d of %s", 3, "ten")
    assert kept.only() == {
        "time": 12.5,
        "level": "warning",
        "component": "agent-0",
        "text": "lag is 3 of ten",
    }


def test_lower_levels_never_leave(log: Log, kept: Kept) -> None:
    log.debug("quiet")
    assert not log.isEnabledFor(logging.DEBUG)
    log.info("loud")
    assert kept.only()["text"] == "loud"


def test_exception_is_text_at_its_source(log: Log, kept: Kept) -> None:
    try:
        raise ValueError("no such thing")
    except ValueError:
        log.exception("step %d failed", 3)
    record = kept.only()
    lines = record["text"].splitlines()
    assert (record["level"], lines[0]) == ("error", "step 3 failed")
    assert lines[1].startswith("Traceback")
    assert lines[-1] == "ValueError: no such thing"


def test_what_leaves_can_be_shown_as_well(log: Log, kept: Kept) -> None:
    shown = []
    log.show(lambda *record: shown.append(record))
    log.debug("quiet")
    log.warning("lag is %d", 3)
    log.event("start", "incarnation 7", part=2)
    assert shown == [
        (12.5, "warning", "lag is 3"),
        (12.5, "info", "start: incarnation 7 part=2"),
    ]
    assert len(kept.records()) == 2


def test_wrong_arguments_do_not_raise(log: Log, kept: Kept) -> None:
    log.info("%d %d", 1)
    log.info("%(a)s", {"b": 1})
    log.info("%d", "x")
    texts = [record["text"] for record in kept.records()]
    assert texts[0].startswith("'%d %d' % (1,) (")
    assert len(texts) == 3


def test_section_is_a_ruled_line(log: Log, kept: Kept) -> None:
    log.section("learn 100%")
    assert kept.only()["text"].strip("-") == " learn 100% "
    assert len(kept.only()["text"]) == 72


def test_event_has_kind_detail_and_fields(log: Log, kept: Kept) -> None:
    log.event("checkpoint", "saved", iteration=np.int64(7), path="a/b", ratio=0.5)
    assert kept.only() == {
        "time": 12.5,
        "level": "info",
        "component": "agent-0",
        "event": "checkpoint",
        "detail": "saved",
        "fields": {"iteration": 7, "path": "a/b", "ratio": 0.5},
        "text": "checkpoint: saved iteration=7 path=a/b ratio=0.5",
    }


@pytest.mark.parametrize(
    ("kind", "level"), [("start", "info"), ("lost", "warning"), ("failed", "error")]
)
def test_an_event_is_as_grave_as_what_it_reports(
    log: Log, kept: Kept, kind: str, level: str
) -> None:
    log.event(kind, "replay-0: killed by SIGKILL")
    assert kept.only()["level"] == level


def test_event_leaves_at_every_level_but_is_no_line_of_the_log(kept: Kept) -> None:
    log = make_log("agent-0", kept, level="error", clock=HandClock())
    log.event("start")
    assert kept.only()["event"] == "start"
    assert "text" not in kept.only()


class Odd:
    def __str__(self) -> str:
        return "odd"


def test_fields_that_are_no_data_become_text(log: Log, kept: Kept) -> None:
    log.event(
        "odd",
        thing=Odd(),
        big=1 << 70,
        nan=float("nan"),
        nested={"a": [1, (2, None), Odd()], 3: True},
        array=np.arange(3),
        scalar=np.array(1.5),
    )
    assert kept.only()["fields"] == {
        "thing": "odd",
        "big": str(1 << 70),
        "nan": "nan",
        "nested": {"a": [1, [2, None], "odd"], "3": True},
        "array": "[0 1 2]",
        "scalar": 1.5,
    }


def test_texts_are_bounded_and_can_travel(log: Log, kept: Kept) -> None:
    log.info("%s", "\udce4" + "x" * 100_000)
    text = kept.only()["text"]
    assert text.startswith("\\udce4x")
    assert text.endswith("... (100001 characters)")
    assert len(text) < 17_000


def test_unknown_level_is_refused(kept: Kept) -> None:
    with pytest.raises(ConfigError, match=r"loggerplex\.level is 'loud'"):
        make_log("agent-0", kept, level="loud", clock=HandClock())


def test_logs_of_one_name_are_separate_and_register_nothing(kept: Kept) -> None:
    other = Kept()
    first = make_log("agent-0", kept, level="info", clock=HandClock())
    make_log("agent-0", other, level="info", clock=HandClock()).info("b")
    first.info("a")
    assert [kept.only()["text"], other.only()["text"]] == ["a", "b"]
    assert "agent-0" not in logging.Logger.manager.loggerDict


def test_logs_go_with_their_last_user(kept: Kept) -> None:
    log = make_log("agent-0", kept, level="info", clock=HandClock())
    gone = weakref.ref(log.logger)
    del log
    gc.collect()
    assert gone() is None


def test_early_records_go_to_the_log_that_comes_later(kept: Kept) -> None:
    early = early_log("replay")
    early.debug("below the level")
    early.warning("early")
    early.event("begun", "event", size=3)
    clock = HandClock(7.0)
    log = make_log("replay-0", kept, level="warning", clock=clock)
    shown: list[tuple[float, str, str]] = []
    log.show(lambda *record: shown.append(record))
    assert early.join(log) is log
    early.info("below the level too")
    early.error("still")
    names = [record.get("event", record.get("text")) for record in kept.records()]
    assert names == ["early", "begun", "still"]
    assert {record["component"] for record in kept.records()} == {"replay-0"}
    # A run that counts its rounds has no other times.
    assert {record["time"] for record in kept.records()} == {clock.time()}
    assert [text for _, _, text in shown] == ["early", "begun: event size=3", "still"]
