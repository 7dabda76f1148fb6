"""Signs of life: small files, whole or not there."""

import json
import time
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest

from session.process.heartbeat import Beat, State, read_beat, read_beats, write_beat

BEAT = Beat("agent-0", 1700000000000, State.running, 4711, 1700000000.5, 3.0, "compiling")


def test_a_beat_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_beat(tmp_path, BEAT)
    assert read_beat(tmp_path, "agent-0") == BEAT
    write_beat(tmp_path, replace(BEAT, state=State.done))
    assert read_beats(tmp_path) == {"agent-0": replace(BEAT, state=State.done)}


def test_a_process_that_has_been_replaced_is_not_seen_again(tmp_path: Path) -> None:
    later = replace(BEAT, incarnation=BEAT.incarnation + 1, pid=4712)
    write_beat(tmp_path, later)
    write_beat(tmp_path, replace(BEAT, time=BEAT.time + 0.5))
    write_beat(tmp_path, replace(BEAT, time=BEAT.time + 0.9, state=State.done))
    assert read_beat(tmp_path, "agent-0") == later
    # The later one is silent: it is gone, or the clock was set back.
    for seconds in (60.0, -60.0):
        write_beat(tmp_path, later)
        alone = replace(BEAT, time=BEAT.time + seconds)
        write_beat(tmp_path, alone)
        assert read_beat(tmp_path, "agent-0") == alone


def test_a_component_without_a_heartbeat_file_has_no_beat(tmp_path: Path) -> None:
    assert read_beat(tmp_path, "agent-0") is None
    assert read_beats(tmp_path) == {}
    assert read_beats(tmp_path / "nowhere") == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"name": "agent-0"}', '{"x": 1}', "\x00"])
def test_a_damaged_file_is_no_beat(tmp_path: Path, text: str) -> None:
    (tmp_path / "agent-0").write_text(text)
    assert read_beat(tmp_path, "agent-0") is None
    assert read_beats(tmp_path) == {}


WRONG: dict[str, list[object]] = {
    "name": [3, None],
    "incarnation": [1 << 60, 1 << 52, -1, 1.5, "17", True],
    "state": ["asleep", 1, None],
    "pid": [-1, 1 << 40, "4711", [4711]],
    "time": ["now", 1e300, None],
    "busy_seconds": [-1.0, float("inf"), "3"],
    "doing": [7, ["compiling"]],
    "dropped_records": [-1, 0.5, 1 << 60],
    "ready": [1, "yes"],
    "status": [{"sps": "fast"}, ["sps"], {"sps": None}],
    "boot": ["x", float("nan")],
    "now": ["now", [0.0]],
    "began": [float("inf"), True],
}


@pytest.mark.parametrize("field", WRONG)
def test_a_value_that_is_out_of_range_or_of_another_type_is_no_beat(
    tmp_path: Path, field: str
) -> None:
    assert set(WRONG) == {each.name for each in fields(Beat)}
    for value in WRONG[field]:
        (tmp_path / "agent-0").write_text(json.dumps({**asdict(BEAT), field: value}))
        assert read_beat(tmp_path, "agent-0") is None, value
    assert read_beats(tmp_path) == {}


def test_the_largest_beat_is_read(tmp_path: Path) -> None:
    status = {"sps": float("inf"), "age": float("nan"), "queue": 3}
    beat = replace(BEAT, incarnation=(1 << 52) - 1, doing="x" * 70_000, status=status)
    write_beat(tmp_path, beat)
    assert repr(read_beat(tmp_path, "agent-0")) == repr(beat)


def test_a_beat_that_cannot_be_written_ends_no_process(tmp_path: Path) -> None:
    write_beat(tmp_path / "nowhere", BEAT)


def test_a_half_written_beat_is_not_read(tmp_path: Path) -> None:
    write_beat(tmp_path, BEAT)
    (tmp_path / ".agent-1.99").write_text("{")
    assert list(read_beats(tmp_path)) == ["agent-0"]


def test_a_beat_is_late_after_its_time_and_what_it_asked_for() -> None:
    beat = replace(BEAT, time=time.time() - 10, boot=-1.0)
    assert beat.age_seconds == pytest.approx(10, abs=0.5)
    assert beat.late(5.0)
    assert not beat.late(8.0)
    assert replace(beat, busy_seconds=0.0).late(8.0)
    assert replace(beat, time=time.time() + 60, boot=-1.0).age_seconds == 0.0


def test_a_beat_of_an_older_version_is_measured_by_the_wall_clock(tmp_path: Path) -> None:
    write_beat(tmp_path, BEAT)
    written = json.loads((tmp_path / "agent-0").read_text())
    older = {key: value for key, value in written.items() if key not in ("boot", "now", "began")}
    older["time"] = time.time() - 10
    (tmp_path / "agent-0").write_text(json.dumps(older))
    beat = read_beat(tmp_path, "agent-0")
    assert beat is not None
    assert beat.age_seconds == pytest.approx(10, abs=0.5)
    assert beat.life_seconds == 0.0


def test_the_old_beat_is_written_over_in_place(tmp_path: Path) -> None:
    write_beat(tmp_path, BEAT)
    file = (tmp_path / "agent-0").stat().st_ino
    for doing in ("a longer story than before", "", "x" * 5000, "compiling"):
        write_beat(tmp_path, replace(BEAT, doing=doing))
        assert read_beat(tmp_path, "agent-0") == replace(BEAT, doing=doing)
    # A new file for each of them would cost 30 times as much, and space on a full disk.
    assert (tmp_path / "agent-0").stat().st_ino == file
    assert [path.name for path in tmp_path.iterdir()] == ["agent-0"]


def test_a_beat_that_is_half_written_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_beat(tmp_path, BEAT)
    whole = (tmp_path / "agent-0").read_bytes()
    found = [whole[:100], whole]
    monkeypatch.setattr(Path, "read_bytes", lambda path: found.pop(0))
    assert read_beat(tmp_path, "agent-0") == BEAT


def test_the_end_of_a_longer_beat_is_left_out(tmp_path: Path) -> None:
    write_beat(tmp_path, BEAT)
    with (tmp_path / "agent-0").open("ab") as file:
        file.write(b'e": 3}\n')
    assert read_beat(tmp_path, "agent-0") == BEAT
