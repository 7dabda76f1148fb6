"""docs/api.md is what `docs/generate.py` makes now, and lists every public name."""

import surreal_like
from docs.api_reference import api_page
from docs.generate import API


def test_the_page_is_up_to_date() -> None:
    assert API.read_text() == api_page(), "run: python docs/generate.py"


def test_it_has_every_public_name_once_with_its_signature() -> None:
    text = api_page()
    for name in surreal_like.__all__:
        assert f"`{name}" in text
    assert "| `act(obs)` | Chooses actions. |" in text
    given = "folder, checkpoint='best', *, policy=None, trainable=False, import_path=()"
    assert f"| `load_policy({given})` | Loads the policy of a run. |" in text
    assert " at 0x" not in text
