"""What JSON becomes in a column: what Hudi's converter makes of it, or a bad record with its place; nothing else."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.errors import InputError
from skep_format.rowfiles.json_rows import _read_each, json_rows, json_values
from skep_format.rowfiles.rejected import Line, Rejected
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import Schema
from skep_stream.kafka.messages import MessagePlace

GOLDEN: Final = json.loads((Path(__file__).parent / "golden" / "json_values.json").read_text(encoding="utf-8"))
RANGES: Final = {
    "int": (-(1 << 31), 1 << 31),
    "date": (-(1 << 31), 1 << 31),
    "time-millis": (0, 86_400_000),
    **dict.fromkeys(("long", "timestamp-millis", "timestamp-micros", "local-timestamp-micros"), (-(1 << 63), 1 << 63)),
}
REFUSED: Final[dict[str, set[str]]] = {  # beside numbers that a column does not hold exactly, which Hudi cuts or wraps
    "time-millis": {'"-1"', '"86400000"'},
    "float": {"1e400", "-1e400", "1e300", "3.5e38"},  # infinite with Hudi
    "double": {"1e400", "-1e400"},
    "string": {'"\\ud800"'},  # a question mark with Hudi
    "bytes": {'"\\ud800"'},
    "decimal(5,2)": {'"abc"', '"NaN"', '"inf"', '"1f"'},  # the bytes of a number in base64 with Hudi
    "decimal(38,10)": {'"abc"', '"NaN"', '"inf"', '"1f"', '"Infinity"', '"true"', '"MTIz"'},
    "fixed(4)": {"[]", "[1,2]", "[256,-1]", "[1,2,3,4,5]"},  # cut or filled up with Hudi
    "array<int>": {'[1,"2",3.5]'},
    "map<int>": {'{"a":1.50}'},
    "record": {'{"a":1.50}'},
}
ALONE: Final = '"2024-01-02"', '"2024-01-02T10:11:12+0100"'
TAKEN: Final[dict[str, dict[str, Any]]] = {
    "timestamp-millis": {ALONE[0]: 1704153600000, ALONE[1]: 1704186672000},
    "timestamp-micros": {
        ALONE[0]: 1704153600000000,
        ALONE[1]: 1704186672000000,
        '"0001-01-01T00:00:00Z"': -62135596800000000,
        '"9999-12-31T23:59:59.999999Z"': 253402300799999999,
    },
    "local-timestamp-micros": {ALONE[0]: 1704153600000000},
    "fixed(4)": {f'"{text}"': f"0x{text.encode().hex()}" for text in ("true", "MTIz")},
    "string": {"-0.0": "-0.0"},
    "bytes": {token: f"0x{token.encode().hex()}" for token in GOLDEN["tokens"] if token[0] in "[{" or token == "-0.0"},
    "decimal(5,2)": {'"+1"': "1.00", '"1e2"': "100.00"},  # which is base64 with Hudi, too
    "decimal(38,10)": {
        f'"{text}"': f"{Decimal(text):.10f}"
        for text in ("+1", "1e2", "86400000", "2147483648", "9223372036854775808", "20240102", "1704190272000000")
    },
}


def schema(kind: Any) -> Schema:
    return parse_avro({"type": "record", "name": "r", "fields": [{"name": "v", "type": ["null", kind]}]})


def plain(column: pa.ChunkedArray) -> Any:
    """A value as the golden file has it."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    (value,) = column.to_pylist()
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return f"{value:f}" if isinstance(value, Decimal) else dict(value) if pa.types.is_map(kind) else value


def by_itself(line: bytes, form: Schema) -> pa.Table:
    """A line as it is read without Arrow."""
    return _read_each([(0, line)], form, lambda at: Line("f", at), Rejected())[0]


def fits(kind: str, token: str) -> bool:
    """Whether a number is one that the column holds."""
    if kind not in RANGES or token[0] not in "-0123456789":
        return True
    number, (least, end) = Decimal(token), RANGES[kind]
    return number == number.to_integral_value() and least <= number < end


@pytest.mark.parametrize("kind", GOLDEN["types"])
def test_a_value_is_what_hudi_makes_of_it(kind: str) -> None:
    form, theirs = schema(GOLDEN["types"][kind]), GOLDEN["values"][kind]
    for token in GOLDEN["tokens"]:
        line = f'{{"v": {token}}}'.encode()
        rejected = Rejected()
        rows = json_rows("f", line, form, rejected)
        assert rows.equals(by_itself(line, form)) or token == '"NaN"', (kind, token)
        wanted = theirs.get(token)
        if kind in ("float", "double") and wanted is not None:
            wanted = float((np.float32 if kind == "float" else float)(wanted.replace("Infinity", "inf")))
        wanted = TAKEN.get(kind, {}).get(token, wanted)
        kept = rejected.taken()
        if wanted is None or token in REFUSED.get(kind, ()) or not fits(kind, token):
            assert (rows.num_rows, kept is not None) == (0, True), (kind, token, rows.to_pydict())
            continue
        assert kept is None, (kind, token, kept)
        found = plain(rows.column("v"))
        assert found == wanted or (found != found and wanted != wanted), (kind, token, found, wanted)


def places(rejected: Rejected) -> list[tuple[str, int, str]]:
    kept = rejected.taken()
    assert kept is not None
    return list(zip(*(kept[name].to_pylist() for name in ("source", "line", "error")), strict=True))


def test_a_bad_value_is_kept_with_its_line_its_column_and_its_beginning() -> None:
    form = parse_avro(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "n", "type": ["null", "long"]},
                {"name": "at", "type": ["null", GOLDEN["types"]["timestamp-micros"]]},
                {"name": "cost", "type": ["null", GOLDEN["types"]["decimal(5,2)"]]},
                {"name": "all", "type": ["null", {"type": "array", "items": {"type": "record", "name": "i",
                                                  "fields": [{"name": "a", "type": ["null", "int"]}]}}]},
                {"name": "text", "type": ["null", "string"]},
            ],
        }
    )  # fmt: skip
    bad = {
        b'{"n": 1e300000000}': "column n: 1E+300000000 is no long",
        b'{"n": "1_0"}': 'column n: "1_0" is no long',
        b'{"n": 1e99999999999999999999}': "not JSON: a number has an exponent beyond all ranges",
        b'{"at": 1.5}': "column at: 1.5 is no timestamp[us, UTC]",
        b'{"at": true}': "column at: true is no timestamp[us, UTC]",
        b'{"at": {}}': "column at: {} is no timestamp[us, UTC]",
        b'{"at": 9223372036854775808}': "column at: 9223372036854775808 is no timestamp[us, UTC]",
        b'{"cost": 12345.67}': "column cost: 12345.67 is no decimal(5,2)",
        b'{"all": 5}': "column all: 5 is no list",
        b'{"all": [{"a": 1}, 2]}': "column all.element: 2 is no struct",
        b'{"all": [{"a": "x"}]}': 'column all.element.a: "x" is no int',
        b'{"text": "\\ud800"}': 'column text: "\\ud800" is no string',
        b'{"text": "\xff"}': "this is not in UTF-8: byte 11 is 0xff",
        b'{"n": "' + b"7" * 200 + b'"}': f'column n: "{"7" * 79}… is no long',
        b'{"n": ' + b"[" * 3000 + b"]" * 3000 + b"}": "values are nested too deeply",
        b'{"text": ' + b'{"a":' * 3000 + b"1" + b"}" * 3001: "values are nested too deeply",
        b'{"n": ' + b"7" * 5000 + b"}": "not JSON: Exceeds the limit",
        b"null": "not a JSON object",
        b"7": "not a JSON object",
        b'{"n": NaN}': "not JSON: NaN is no value",
        b'{"n": 1} {"n": 2}': "not JSON: Extra data",
    }
    good = b'{"n": 7, "at": 1e12, "cost": "1.5"}'
    rejected = Rejected()
    rows = json_rows("f", b"\n".join((*bad, good, b"")), form, rejected)
    assert rows["n"].to_pylist() == [7]
    assert rows["at"].cast(pa.int64()).to_pylist() == [1_000_000_000_000]
    found = places(rejected)
    assert [(source, line) for source, line, _ in found] == [("f", line) for line in range(1, len(bad) + 1)]
    assert not [pair for pair in zip(bad.values(), found, strict=True) if not pair[1][2].startswith(pair[0])]

    messages = pa.array([*bad, good], pa.large_binary())
    rows, kept = json_values(messages, form, lambda row: MessagePlace("t", 1, row), rejected)
    assert (rows["n"].to_pylist(), kept.to_pylist()) == ([7], [len(bad)])
    assert places(rejected) == [("topic t, partition 1", line - 1, error) for _, line, error in found]

    for line, why in bad.items():
        with pytest.raises(InputError) as raised:
            json_rows("f", good + b"\n" + line, form)
        assert raised.value.message.startswith(f"f, line 2: {why}")
        facts = raised.value.fields
        assert (facts["path"], facts["line"]) == ("f", 2)
        assert facts.get("column") == (why.split()[1].rstrip(":") if why.startswith("column") else None)
    assert not rejected.taken()


def test_decimals_of_all_precisions_are_exact() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}
    text = "1234567890123456789012345678.0123456789"
    rows = json_rows("f", f'{{"v": {text}}}\n{{"v": "-{text}"}}'.encode(), schema(kind))
    assert rows["v"].to_pylist() == [Decimal(text), Decimal(f"-{text}")]
    fixed = {**kind, "type": "fixed", "name": "d", "size": 16}
    octets = list((-12345).to_bytes(16, "big", signed=True))
    rows = json_rows("f", json.dumps({"v": octets}).encode(), schema(fixed))  # as Hudi takes Avro's fixed
    assert rows["v"].to_pylist() == [Decimal("-0.0000012345")]


@pytest.mark.parametrize("line", [b"null", b"null\n", b'{"v": 1}\nnull', b' \n null\n{"v": 1}'])
def test_a_null_in_the_place_of_a_row_is_refused(line: bytes) -> None:
    """Arrow makes a row of it, or ends the process."""
    with pytest.raises(InputError, match=r"f, line \d: not a JSON object"):
        json_rows("f", line, schema("long"))


def test_a_bad_line_among_many_leaves_the_others_as_they_are() -> None:
    lines = [f'{{"v": {number}}}'.encode() for number in range(5000)]
    lines[1500], lines[4000], lines[4500] = b"{", b" ", b'{"v": "7"}'
    rejected = Rejected()
    rows = json_rows("f", b"\n".join(lines), schema("long"), rejected)
    wanted = [*range(1500), *range(1501, 4000), *range(4001, 4500), 7, *range(4501, 5000)]
    assert rows["v"].to_pylist() == wanted
    assert [line for _, line, _ in places(rejected)] == [1501]
    rows, kept = json_values(pa.array(lines), schema("long"), lambda at: MessagePlace("t", 0, at), rejected)
    assert rows["v"].to_pylist() == wanted
    assert kept.to_pylist() == [at for at in range(5000) if at not in (1500, 4000)]
    assert [line for _, line, _ in places(rejected)] == [1500]


def test_no_message_makes_up_for_another_one() -> None:
    """Together these have three objects."""
    rejected = Rejected()
    halves = pa.array([b'{"v": 1}{"v": 2}', b'{"v":', b"3}", b'{"v":\n4}'])
    rows, kept = json_values(halves, schema("long"), lambda at: MessagePlace("t", 0, at), rejected)
    assert (rows["v"].to_pylist(), kept.to_pylist()) == ([4], [3])
    assert [line for _, line, _ in places(rejected)] == [0, 1, 2]


HOSTILE = st.one_of(
    st.sampled_from(GOLDEN["tokens"]),
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.floats().map(json.dumps),
    st.text(st.characters()).map(json.dumps),
    st.recursive(
        st.sampled_from(["null", "1", '"x"', "1.50", "true", "1e99"]),
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]")
            | inner.map(lambda each: f'{{"a": {each}, "b": 1}}')
        ),
        max_leaves=5,
    ),
    st.text(max_size=5),
    st.builds(lambda sign, exponent: f"{sign}1e{exponent}", st.sampled_from(["", "-"]), st.integers()),
)


@settings(deadline=None)
@given(st.sampled_from(sorted(GOLDEN["types"])), st.lists(HOSTILE, min_size=1, max_size=6))
def test_a_hostile_value_is_stored_by_the_rules_or_kept_apart(kind: str, tokens: list[str]) -> None:
    form = schema(GOLDEN["types"][kind])
    lines = [f'{{"v": {token}}}'.encode("utf-8", "surrogatepass").replace(b"\n", b"") for token in tokens]
    rejected = Rejected()
    rows = json_rows("f", b"\n".join(lines), form, rejected)
    kept = rejected.taken()
    refused = set() if kept is None else set(kept["line"].to_pylist())
    taken = [number for number in range(1, len(lines) + 1) if number not in refused]
    assert rows.num_rows == len(taken)
    for row, number in enumerate(taken):
        line = lines[number - 1]
        assert rows.slice(row, 1).equals(json_rows("f", line, form)) or b"NaN" in line
        value = json.loads(line, parse_float=Decimal)["v"]
        if kind in RANGES and isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            assert plain(rows["v"].slice(row, 1)) == value
        if kind.startswith("decimal") and isinstance(value, (int, Decimal)):
            assert rows["v"][row].as_py() == value
        if kind == "string" and isinstance(value, str):
            assert rows["v"][row].as_py() == value
    for number in refused:
        with pytest.raises(InputError, match="f, line 1: "):
            json_rows("f", lines[number - 1], form)
