"""What watches the errors of public calls in all tests finds those that are not skep's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import raised_errors

from skep_format.errors import InputError


@pytest.fixture
def seen() -> Iterator[list[str]]:
    yield raised_errors._seen
    raised_errors._seen.clear()


def test_other_errors_are_seen_although_they_are_caught(seen: list[str]) -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        raised_errors.watch(json.loads)("no json")
    (found,) = seen
    assert "loads raised JSONDecodeError, which is no SkepError" in found
    seen.clear()


def test_what_a_public_call_may_raise(seen: list[str]) -> None:
    def own() -> None:
        raise InputError("a reason")

    def of_the_test() -> None:
        raise OSError("a storage of the test")

    calls: list[Any] = [own, of_the_test, lambda: json.loads()]  # type: ignore[call-arg]
    for call in calls:
        with pytest.raises((InputError, OSError, TypeError)):
            raised_errors.watch(call)()
    with pytest.raises(TypeError):
        raised_errors.watch(json.loads)()
    assert seen == []


def test_public_calls_are_watched() -> None:
    from skep.handles.table import Table

    assert {Table.read.__code__.co_filename, Table.delete.__code__.co_filename} == {raised_errors.__file__}
