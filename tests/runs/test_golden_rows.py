"""The rows of every form are those of the golden file, to the last bit."""

from __future__ import annotations

import json

import pytest

from tests.runs.golden_rows import FORMS, GOLDEN, describe

EXPECTED = json.loads(GOLDEN.read_text())


def test_the_file_has_all_forms() -> None:
    assert list(EXPECTED) == list(FORMS)
    refused = [form for form, each in EXPECTED.items() if isinstance(each, str)]
    assert len(FORMS) - len(refused) == 13


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_of_the_golden_file(form: str) -> None:
    assert json.loads(json.dumps(describe(form))) == EXPECTED[form]
