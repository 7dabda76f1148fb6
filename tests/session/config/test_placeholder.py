"""What each placeholder takes, and which one is narrower than which."""

from __future__ import annotations

from typing import Any

import pytest

from session import Config, ConfigError
from session.config.placeholder import Placeholder, check_default, expectation, parse

# One value of each kind, and the placeholders that take it.
VALUES: list[tuple[Any, set[str]]] = [
    (3, {"_object_", "_singleton_", "_int_", "_float_", "_num_"}),
    (3.5, {"_object_", "_singleton_", "_float_", "_num_"}),
    (1e8, {"_object_", "_singleton_", "_int_", "_float_", "_num_"}),
    (float("nan"), {"_object_", "_singleton_", "_float_", "_num_"}),
    (True, {"_object_", "_singleton_", "_bool_"}),
    ("b", {"_object_", "_singleton_", "_str_", "_enum[a, b]_"}),
    ("B", {"_object_", "_singleton_", "_str_"}),
    ("", {"_object_", "_singleton_", "_str_"}),
    ([], {"_object_", "_list_"}),
    ([1], {"_object_", "_list_"}),
    ({}, {"_object_", "_dict_"}),
    ({"a": 1}, {"_object_", "_dict_"}),
    (None, {"_object_"}),
]


def check_row(text: str) -> None:
    """Config.extend takes exactly the values of the table for one placeholder."""
    for value, takers in VALUES:
        config = Config({"k": value})
        if text in takers:
            config.extend({"k": text}, strict=True)
        else:
            with pytest.raises(ConfigError, match=r"^k is .* expected "):
                config.extend({"k": text}, strict=True)


def test_object_takes_anything() -> None:
    check_row("_object_")


def test_singleton_takes_no_list_and_no_dict() -> None:
    check_row("_singleton_")


def test_dict_takes_mappings_only() -> None:
    check_row("_dict_")


def test_list_takes_lists_only() -> None:
    check_row("_list_")


def test_int_takes_no_bool_and_no_fraction() -> None:
    check_row("_int_")


def test_float_takes_int_too_but_no_bool() -> None:
    check_row("_float_")
    assert type(Config({"k": 3}).extend({"k": "_float_"}).k) is float


def test_num_takes_int_and_float_as_they_are() -> None:
    check_row("_num_")
    assert type(Config({"k": 3}).extend({"k": "_num_"}).k) is int


def test_bool_takes_no_number() -> None:
    check_row("_bool_")


def test_str_takes_texts_only() -> None:
    check_row("_str_")


def test_enum_is_exact_and_case_sensitive() -> None:
    check_row("_enum[a, b]_")


@pytest.mark.parametrize("text", ["_enum[a,b]_", "_enum[a, b]_", "_enum[ a ,b ]_"])
def test_enum_with_and_without_spaces(text: str) -> None:
    assert parse(text, "k") == Placeholder("enum", ("a", "b"))


@pytest.mark.parametrize("text", ["_enum[]_", "_enum[a,,b]_", "_enum['a', 'b']_", "_enum[[a]]_"])
def test_enum_without_options_or_with_quotes_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^k\.x is .*without quotes: _enum\[a, b\]_$"):
        parse(text, "k.x")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("_str", "_str_"),
        ("int_", "_int_"),
        ("__int__", "_int_"),
        ("_Bool_", "_bool_"),
        ("_sting_", "_str_"),
        ("_integer_", "_int_"),
        ("_lits_", "_list_"),
        ("_enum_", "_enum[a, b]_"),
        ("_enum(a, b)_", "_enum[a, b]_"),
        ("_enum[a, b]", "_enum[a, b]_"),
        ("_int[3]_", "_int_"),
    ],
)
def test_nearest_placeholder_is_named(text: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "k")
    assert str(caught.value) == (
        f"k is {text!r}, no placeholder; did you mean {meant}? For the text itself write \\{text}"
    )


def test_an_enum_knows_numbers_and_bools_as_yaml_reads_them() -> None:
    wanted = parse("_enum[1, 0.5, true, auto]_", "k")
    assert wanted
    for value, kept in ((1, 1), ("1", 1), (0.5, 0.5), (True, True), ("auto", "auto")):
        assert wanted.accepts(value)
        assert (wanted.convert(value), type(wanted.convert(value))) == (kept, type(kept))
    assert not any(map(wanted.accepts, (2, False, "on", None, [1])))


@pytest.mark.parametrize(("kind", "meant"), [(int, "_int_"), (str, "_str_"), (float, "_float_")])
def test_a_type_is_no_default(kind: type, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_default({"a": [{"b": kind}]}, "")
    assert str(caught.value) == f"a[0].b is the type {kind.__name__}; did you mean {meant}?"


@pytest.mark.parametrize(
    "text",
    ["", "_", "__main__", "_runs", "a_b", "int", "_my_folder_", "_a b_", "x_int_", "pkg._str_:A"],
)
def test_ordinary_texts_are_no_placeholders(text: str) -> None:
    assert parse(text, "k") is None


@pytest.mark.parametrize(
    ("default", "text"),
    [
        (True, "_bool_"),
        (1, "_int_"),
        (1.0, "_float_"),
        ("x", "_str_"),
        ([1], "_list_"),
        ({"a": 1}, "_dict_"),
        (None, "_object_"),
        ("_num_", "_num_"),
        (["_int_"], "[_int_]"),
        ([["_enum[a,b]_"]], "[[_enum[a, b]_]]"),
    ],
)
def test_a_plain_default_expects_its_own_kind(default: Any, text: str) -> None:
    assert str(expectation(default, "k")) == text


# Rows: what the left one takes is taken by all to its right, and by no others.
NARROWER: dict[str, set[str]] = {
    "_object_": set(),
    "_singleton_": {"_object_"},
    "_dict_": {"_object_"},
    "_list_": {"_object_"},
    "_int_": {"_object_", "_singleton_", "_num_"},
    "_float_": {"_object_", "_singleton_", "_num_"},
    "_num_": {"_object_", "_singleton_"},
    "_bool_": {"_object_", "_singleton_"},
    "_str_": {"_object_", "_singleton_"},
    "_enum[a, b]_": {"_object_", "_singleton_", "_str_"},
    "_enum[a]_": {"_object_", "_singleton_", "_str_", "_enum[a, b]_"},
}


@pytest.mark.parametrize("text", NARROWER)
def test_a_placeholder_narrows_itself_and_wider_ones(text: str) -> None:
    placeholder = parse(text, "k")
    assert placeholder
    wider = {other for other in NARROWER if placeholder.narrows(expectation(other, "k"))}
    assert wider == NARROWER[text] | {text}


def test_lists_narrow_by_their_items() -> None:
    def narrows(one: Any, other: Any) -> bool:
        return expectation(one, "k").narrows(expectation(other, "k"))

    assert narrows(["_int_"], ["_num_"])
    assert narrows(["_int_"], "_list_")
    assert not narrows(["_num_"], ["_int_"])
    assert not narrows("_list_", ["_int_"])
