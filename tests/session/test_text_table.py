"""Texts in a table."""

from session.text_table import columns


def test_columns_are_aligned() -> None:
    table = columns(["name", "n"], [["a", "1"], ["long", "234"]], right=(1,))
    assert table == "name     n\na        1\nlong   234"
    assert columns([], [["a", ""]]) == "a"
    assert columns([], []) == ""
