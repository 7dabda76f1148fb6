"""Config files: YAML and JSON, there and back, and the line of each error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session import Config, ConfigError
from tests.examples import examples

EXAMPLE: dict[str, Any] = {"demo": {"ps": {"host": "myhost", "port": 12345}}, "dim": [64, 64, 3]}
plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text("ab1e+-.:_~ ü"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", min_size=1), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("ending", ["json", "yaml", "yml", "JSON"])
def test_load_file_goes_by_the_ending(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"experiment.{ending}"
    file.write_text(json.dumps(EXAMPLE))  # JSON of this kind is YAML too
    assert Config.load_file(file) == Config.load_file(str(file)) == EXAMPLE


@pytest.mark.parametrize("ending", ["json", "yaml", "yml"])
def test_dump_file_is_read_back(tmp_path: Path, ending: str) -> None:
    config = Config(
        EXAMPLE | {"texts": ["1e8", "7e-4", "on", "null", "0x1", "0o7", "a: b", "1:30"]}
    )
    config.dump_file(tmp_path / f"config.{ending}")
    assert Config.load_file(tmp_path / f"config.{ending}") == config


def test_dumped_yaml_reads_well(tmp_path: Path) -> None:
    Config({"b": {"dims": [64, 64], "lr": 1e-5, "open": {}}, "a": "1e8"}).dump_file(
        tmp_path / "c.yml"
    )
    assert (tmp_path / "c.yml").read_text() == (
        "b:\n  dims: [64, 64]\n  lr: 1.0e-05\n  open: {}\na: '1e8'\n"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e8", 1e8),
        ("7e-4", 7e-4),
        ("-1E+3", -1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1_000", 1000),
        ("0x10", 16),
        ("010", 10),
        ("0o17", 15),
        ("0o8", "0o8"),
        (".inf", float("inf")),
        ("true", True),
        ("on", "on"),
        ("no", "no"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1e", "1e"),
        ("~", None),
        ("", None),
    ],
)
def test_numbers_and_texts_are_those_of_yaml_1_2(tmp_path: Path, text: str, value: Any) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"a: {text}\n")
    read = Config.load_file(file).a
    assert (read, type(read)) == (value, type(value))


def aliases(node: str) -> str:
    """Returns a YAML text of 40 lines, each of which stands for the one before twice."""
    lines = (f"a{n}: &a{n} {node.format(f'*a{n - 1}')}\n" for n in range(1, 40))
    return "a0: &a0 {k: 1}\n" + "".join(lines)


def test_aliases_within_the_bound_are_read(tmp_path: Path) -> None:
    lines = aliases("{{k: {0}, l: {0}}}").splitlines(keepends=True)
    (tmp_path / "c.yaml").write_text("".join(lines[:10]))
    found, levels = Config.load_file(tmp_path / "c.yaml").a9, 0
    while isinstance(found, Config):
        found, levels = found.k, levels + 1
    assert (found, levels) == (1, 10)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.yaml", "a: 1\nb:\n  c: 1\n  c: 2\n", ":4: key 'c' stands twice"),
        ("c.json", '{"a": {"b": 1, "b": 2}}', ": key 'b' stands twice"),
        (
            "c.yaml",
            "a: 1\nb: [1,\nc: 2",
            ":3: did not find expected ',' or ']', while parsing a flow sequence from line 2",
        ),
        ("c.yaml", "[" * 100_000, ": nests too deeply, expected at most 100 levels"),
        ("c.yaml", "- " * 100_000, ": nests too deeply"),
        ("c.yaml", "[" * 101 + "]" * 101, ": nests too deeply"),
        ("c.json", "[" * 100_000, ": nests too deeply"),
        ("c.yaml", aliases("[{0}, {0}]"), ":14: more than 100000 values"),
        ("c.yaml", aliases("{{k: {0}, l: {0}}}"), ":14: more than 100000 values"),
        ("c.yaml", aliases("{{<<: [{0}, {0}]}}"), ":14: more than 100000 values"),
        ("c.yaml", f"a: [{'1, ' * 100_000}]", ":1: more than 100000 values"),
        ("c.json", f'{{"a": [{"1, " * 100_000}1]}}', ": more than 100000 values"),
        ("c.json", '{"a": 1,\nb}', ":2: "),
        ("c.yaml", "- a", ": holds list, expected a mapping"),
        ("c.yaml", "a: !!python/name:os.system 1", ":1: could not determine a constructor"),
        ("c.yaml", "a: &x [*x]", ":1: found unconstructable recursive node"),
        ("c.yaml", "a: !!int x", ": invalid literal"),
        ("c.yaml", "a: \x00", ": unacceptable character"),
        ("c.yaml", "a: {1: 2}", ": a has the key 1, expected a text"),
        ("c.toml", "", ": a config file ends in .yaml, .yml or .json"),
    ],
)
def test_bad_file_is_one_line_with_file_and_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        Config.load_file(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}{message}")
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        Config.load_file(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe4")
    with pytest.raises(ConfigError, match="no UTF-8"):
        Config.load_file(tmp_path / "latin.yaml")
    with pytest.raises(ConfigError, match=r"cannot be written: No such file"):
        Config().dump_file(tmp_path / "none" / "c.yaml")


def test_empty_file_is_an_empty_config(tmp_path: Path) -> None:
    for name in ("c.yaml", "c.json"):
        (tmp_path / name).write_text("")
        assert Config.load_file(tmp_path / name) == {}


def test_merge_key_may_repeat_a_key(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: {q: &x {<<: &y {p: 1}, p: 2}}\nb: {<<: *x, r: 3}\n")
    assert Config.load_file(tmp_path / "c.yaml").b == {"p": 2, "r": 3}


@settings(max_examples=examples(40))
@given(st.dictionaries(st.text("abc", min_size=1), plain_values, max_size=3))
def test_dumped_files_are_read_back(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = tmp_path_factory.mktemp("dumped")
    for name in ("c.yaml", "c.json"):
        try:
            config = Config(data)
        except ConfigError:
            continue  # a text that looks like a placeholder
        config.dump_file(folder / name)
        assert Config.load_file(folder / name) == config
