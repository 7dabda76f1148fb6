"""Client ids of metrics, and the place of a curve: its component and its tag.

In a normal group all clients are one component and the id is part of the tag; in an indexed group
each client is a component.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from session.errors import UsageError
from session.process.component import CLIENT, is_client

_CLIENT_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)+", re.ASCII)
_ID_LIMIT = 200
_TAG_LIMIT = 300
# Between tag and component in a title; no tag contains it.
_COLON = ":"
# MLflow takes no other characters and at most 250 of them, of which a component has up to 63.
_UNUSUAL = re.compile(r"[^\w. -]")
_NAME_LIMIT = 186
NORMAL_GROUPS = ("learner", "session")
INDEXED_GROUPS = ("agent", "gateway", "eval", "replay")
_OF_ROWS = "replay"


def check_client_id(client_id: Any) -> str:
    """Returns the id if it is ``<group>/<id>`` and safe as a path.

    Raises:
        UsageError: the id is invalid.
    """
    valid = isinstance(client_id, str) and len(client_id) <= _ID_LIMIT
    if not valid or not _CLIENT_ID.fullmatch(client_id):
        raise UsageError(
            f"metrics client id {str(client_id)[:_ID_LIMIT]!r}: write <group>/<id>, such as "
            "agent/3, in letters, digits, '_', '-' and '.', no part beginning with '.' or '-'"
        )
    return str(client_id)


def own_client_id(name: Any) -> str:
    """Returns the id of a script that is no component: ``client/`` and a name chosen by its user.

    Args:
        name: ``<group>/<id>``, such as ``simulator/0``, of a group that no component has.

    Raises:
        UsageError: the name is invalid.
    """
    client_id = f"{CLIENT}/{name}"
    if not isinstance(name, str) or "/" not in name or not is_client(name_of(client_id)):
        raise UsageError(
            f"client name {str(name)[:_ID_LIMIT]!r}: write <group>/<id>, such as simulator/0, in "
            "lower case letters, digits and '-', at most 56 characters"
        )
    group = name.partition("/")[0]
    if group in (*NORMAL_GROUPS, *INDEXED_GROUPS):
        raise UsageError(
            f"client name '{name}': the group {group} belongs to components of the run"
        )
    return check_client_id(client_id)


def name_of(client_id: str) -> str:
    """Returns the sender name of a client's messages: ``agent-3`` for ``agent/3``."""
    return client_id.replace("/", "-")


def check_tag(tag: Any) -> str:
    """Returns the tag if it is valid as the name of a curve.

    Raises:
        UsageError: the tag is invalid.
    """
    if not isinstance(tag, str) or not tag.strip(".:# ") or not tag.isprintable():
        raise UsageError(f"metric tag {str(tag)[:80]!r}: expected a text of printable characters")
    if len(tag) > _TAG_LIMIT:
        raise UsageError(
            f"metric tag {tag[:80]!r}... has {len(tag)} characters, the limit is {_TAG_LIMIT}"
        )
    return tag


def curve_name(name: str) -> str:
    """Returns a name that every sink takes: unusual characters become ``_``, a long name is cut.

    Letters of any language, digits, spaces, ``_``, ``-``, ``.`` and ``/`` stay as they are.
    """
    parts = [_UNUSUAL.sub("_", part) for part in name.split("/") if part]
    whole = "/".join("_" if part in (".", "..") else part for part in parts)
    return whole[:_NAME_LIMIT].rstrip("/.") or "_"


@dataclass(frozen=True, slots=True)
class Place:
    """Place of one curve.

    Attributes:
        component: name of the component that reports it; ``learner`` and ``session`` for all
            clients of these groups.
        tag: name of the metric, the same for all components of a kind.
    """

    component: str
    tag: str

    @property
    def title(self) -> str:
        """Name of the curve among those of all components: ``agent/return:agent-0``.

        Tags of the groups ``learner`` and ``session`` stand alone.
        """
        alone = self.component in NORMAL_GROUPS
        return self.tag if alone else f"{self.tag}{_COLON}{self.component}"


def is_renamed(tag: str, place: Place) -> bool:
    """Returns True if :func:`curve_name` has changed the tag of a client in its place."""
    return not place.tag.endswith(_without_marks(tag))


def place_of_title(title: str) -> Place:
    """Returns the place with that title; of a tag that stands alone, the component ``learner``."""
    tag, _, component = title.partition(_COLON)
    return Place(component or NORMAL_GROUPS[0], tag)


def counts_rows(component: str) -> bool:
    """Returns True for a replay shard: the steps of its curves are its rows."""
    return component.partition("-")[0] == _OF_ROWS


def place(client_id: str, tag: str) -> Place:
    """Returns the place of one client's curve.

    Raises:
        UsageError: the id is unsafe, of an unknown group, or no number in an indexed group.
    """
    group, _, name = check_client_id(client_id).partition("/")
    tag = check_tag(tag)
    if group == CLIENT:
        return _place_of_script(name, tag)
    if group in NORMAL_GROUPS:
        return Place(group, _join(name, tag))
    # A component of a policy, such as `replay-left/0`, shares the tags of its kind.
    kind = group.partition("-")[0]
    if kind not in INDEXED_GROUPS:
        known = ", ".join((*NORMAL_GROUPS, *INDEXED_GROUPS))
        raise UsageError(f"metrics client id '{client_id}': the groups are {known}")
    if not name.isdigit():
        raise UsageError(
            f"metrics client id '{client_id}': group {group} counts its clients, as in {group}/0"
        )
    return Place(f"{group}-{int(name)}", _join(kind, tag))


def _place_of_script(own_name: str, tag: str) -> Place:
    """Place of a script's curve; the tag has the name of the client unless it is a number."""
    own_client_id(own_name)
    group, _, name = own_name.partition("/")
    if name.isdigit():
        return Place(f"{CLIENT}-{group}-{int(name)}", _join(group, tag))
    return Place(name_of(f"{CLIENT}/{own_name}"), _join(name, tag))


def _join(section: str, tag: str) -> str:
    own_section = tag.startswith((".", ":"))
    return curve_name(_without_marks(section + ("" if own_section else "/") + tag))


def _without_marks(tag: str) -> str:
    return tag.replace(_COLON, ".").replace("#", ".")
