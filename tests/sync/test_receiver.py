"""Hudi's callback JSON: what is taken from it, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_sync.following.receiver import BadCallbackError, CommitCallback, parse_callback

# As Hudi 0.15.0 sends it, shortened to one write stat with a few of its fields.
SENT = {
    "commitTime": "20260102030405678",
    "tableName": "orders",
    "basePath": "s3a://lake/wh/orders",
    "hoodieWriteStat": [{"fileId": "f-0", "path": "day=1/f-0_0-1-2_20260102030405678.parquet", "numWrites": 3}],
}


def test_what_a_sync_needs_is_taken() -> None:
    body = json.dumps({**SENT, "commitActionType": "commit", "extraMetadata": {"a": "b"}}).encode()
    assert parse_callback(body) == CommitCallback("s3a://lake/wh/orders", "orders", "20260102030405678")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no JSON object"),
        (b"{}", "no basePath"),
        (json.dumps({**SENT, "basePath": ["x"]}).encode(), "no basePath"),
        (json.dumps({**SENT, "tableName": ""}).encode(), "no tableName"),
        (json.dumps({**SENT, "tableName": "a\nb"}).encode(), "tableName"),
        (json.dumps({**SENT, "commitTime": "../x"}).encode(), "commitTime"),
        (json.dumps({**SENT, "commitTime": 5}).encode(), "commitTime"),
    ],
)
def test_anything_else_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(BadCallbackError, match=message):
        parse_callback(body)


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_no_body_brings_it_down(body: bytes) -> None:
    with pytest.raises(BadCallbackError):
        parse_callback(body)
