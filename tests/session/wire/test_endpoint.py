"""Address books: where each endpoint is, checked when the book is made."""

import json
from pathlib import Path

import pytest

from session.errors import ConfigError
from session.wire import Address, AddressBook

ENDPOINTS = ("ps.requests", "replay-0.experience")


def test_books_of_each_transport(tmp_path: Path) -> None:
    assert AddressBook.inproc(ENDPOINTS)["ps.requests"] == Address.same("inproc://ps.requests")
    ipc = AddressBook.ipc(ENDPOINTS, tmp_path)
    assert ipc["ps.requests"].bind == f"ipc://{tmp_path}/ps.requests"
    tcp = AddressBook.tcp({"ps.requests": 7000})
    assert tcp["ps.requests"].connect == "tcp://127.0.0.1:7000"
    assert list(ipc) == list(ENDPOINTS)
    assert ("ps.requests" in tcp, "learner.control" in tcp, len(tcp)) == (True, False, 1)


def test_a_book_survives_its_file(tmp_path: Path) -> None:
    book = AddressBook({"ps.requests": Address("tcp://0.0.0.0:7000", "tcp://head:7000")})
    (tmp_path / "addresses.json").write_text(book.dump())
    assert dict(AddressBook.load(tmp_path / "addresses.json")) == dict(book)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", '{"ps.requests": "tcp://a:1"}', '{"ps.requests": {"bind": "x"}}']
)
def test_a_file_that_is_no_book_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "addresses.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"{path}: not an address book"):
        AddressBook.load(path)


def test_a_book_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: not an address book"):
        AddressBook.load(tmp_path / "nowhere")


def test_an_unknown_endpoint_is_named_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no address for endpoint 'learner\.control'; the book has ps\.requests, replay-0",
    ):
        AddressBook.inproc(ENDPOINTS)["learner.control"]


@pytest.mark.parametrize("text", ["", "ps.requests", "udp://127.0.0.1:1", "TCP://127.0.0.1:1"])
def test_an_unknown_transport_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"of ps\.requests: the transport must be one of inproc"):
        AddressBook({"ps.requests": Address.same(text)})


def test_an_ipc_path_that_the_kernel_cannot_take_is_refused() -> None:
    limit = "/" + "a" * 106
    AddressBook({"ps.requests": Address.same(f"ipc://{limit}")})
    with pytest.raises(ConfigError, match="longer than 107 bytes"):
        AddressBook({"ps.requests": Address.same(f"ipc://{limit}a")})


def test_a_book_is_readable_by_people() -> None:
    book = AddressBook.tcp({"ps.requests": 7000})
    assert json.loads(book.dump()) == {
        "ps.requests": {"bind": "tcp://127.0.0.1:7000", "connect": "tcp://127.0.0.1:7000"}
    }
    assert book.dump().endswith("}\n")


def test_a_bind_address_may_name_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    monkeypatch.delenv("NOT_SET", raising=False)
    path = tmp_path / "addresses.json"
    book = {
        "ps.requests": Address("tcp://$(POD_IP):7000", "tcp://run-ps:7000"),
        "learner.control": Address("tcp://$(NOT_SET):7001", "tcp://$(POD_IP):7001"),
    }
    path.write_text(AddressBook(book).dump())
    found = AddressBook.load(path)
    assert found["ps.requests"] == Address("tcp://10.0.0.7:7000", "tcp://run-ps:7000")
    # Only who binds notices, and only what is bound is replaced.
    assert found["learner.control"] == book["learner.control"]
