"""Hints in errors: the known names nearest to an unknown one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches


def did_you_mean(
    name: str,
    known: Iterable[str],
    *,
    lead: str = "",
    otherwise: str = "",
    most: int = 1,
    cutoff: float = 0.6,
    shown: Callable[[str], str] = str,
) -> str:
    """Returns ``did you mean X?`` for the known names most similar to an unknown one.

    Upper and lower case are alike.

    Args:
        name: the unknown name.
        known: the names that exist.
        lead: text before the hint, such as "; ".
        otherwise: text returned if no name is similar, without the lead.
        most: maximum number of names shown, the most similar one first.
        cutoff: minimum similarity, 0 to 1, as in ``difflib.get_close_matches``.
        shown: known name -> its form in the hint.
    """
    spelt = {each.casefold(): each for each in known}
    near = get_close_matches(name.casefold(), spelt, n=most, cutoff=cutoff)
    names = " or ".join(shown(spelt[each]) for each in near)
    return f"{lead}did you mean {names}?" if near else otherwise
