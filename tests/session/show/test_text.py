"""Numbers and tables as people read them."""

import pytest

from session.show.text import (
    bar,
    columns,
    count,
    decimal,
    duration,
    fit_table,
    percent,
    rate,
    short_time,
    size,
    tenths,
)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (count(12345), "12,345"),
        (count(None), "-"),
        (rate(1234.4), "1,234/s"),
        (rate(3.21), "3.2/s"),
        (rate(None), "-"),
        (decimal(123.44), "123.4"),
        (decimal(-7.0), "-7.0"),
        (decimal(0.01234), "0.0123"),
        (decimal(12345.6), "12,346"),
        (decimal(0.0), "0.0"),
        (decimal(None), "-"),
        (decimal(float("nan")), "nan"),
        (percent(0.123), "12 %"),
        (percent(None), "-"),
        (duration(75.4), "01:15"),
        (duration(59.97), "00:59"),
        (duration(-0.5), "00:00"),
        (tenths(11.88), "11.8 s"),
        (tenths(0.3), "0.3 s"),
        (tenths(16.1), "16.1 s"),
        (duration(3675), "1:01:15"),
        (duration(90061), "1d 01:01:01"),
        (duration(None), "-"),
        (duration(float("inf")), "-"),
        (short_time(0.0031), "3 ms"),
        (short_time(0.0002), "0.2 ms"),
        (short_time(0.0), "0 ms"),
        (short_time(0.9999), "1.0 s"),
        (short_time(12.34), "12.3 s"),
        (short_time(130), "02:10"),
        (size(532), "532 B"),
        (size(2_450_000), "2.5 MB"),
        (size(999_960), "1.0 MB"),
        (size(28_268_000_000), "28.3 GB"),
        (bar(0.5, 4), "━━──"),
        (bar(7.0, 4), "━━━━"),
        (bar(-1.0, 4), "────"),
    ],
)
def test_numbers_read_well(said: str, expected: str) -> None:
    assert said == expected


def test_columns_are_aligned() -> None:
    table = columns(["name", "n"], [["a", "1"], ["long", "234"]], right=(1,))
    assert table == "name     n\na        1\nlong   234"
    assert columns([], [["a", ""]]) == "a"
    assert columns([], []) == ""


def test_a_cell_of_any_text_stays_in_its_line() -> None:
    text = columns(["name", "n"], [["a\nb\x1b[2J\tü", "1"]])
    assert text == "name        n\na?b?[2J?ü   1"


@pytest.mark.parametrize(
    ("width", "head"),
    [(0, "a   long   c"), (12, "a   long   c"), (11, "a   c"), (4, "a"), (1, "a")],
)
def test_columns_are_left_out_until_a_table_is_narrow_enough(width: int, head: str) -> None:
    table = {"a": ["a", "1"], "b": ["long", ""], "c": ["c", "3"]}
    lines = fit_table(table, width, spare=("b", "none", "c"), right=("a",)).splitlines()
    assert lines[0] == head
