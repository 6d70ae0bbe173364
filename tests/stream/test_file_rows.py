"""Rows of JSON lines and CSV: what Hudi takes is taken, and errors name file, line and column."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from typing import Any

import pytest

from skep_format.errors import InputError
from skep_format.rowfiles.csv_cut import Dialect
from skep_format.rowfiles.csv_rows import ColumnOrderWarning, csv_rows
from skep_format.rowfiles.csv_text import CsvForm
from skep_format.rowfiles.json_rows import _read_by_arrow, _read_each, json_rows
from skep_format.rowfiles.rejected import Line, Rejected
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import Schema


def schema(**types: Any) -> Schema:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return parse_avro({"type": "record", "name": "r", "fields": fields})


OPTIONAL_DOUBLE = ["null", "double"]
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
DAYS = {"type": "int", "logicalType": "date"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
PLACE = {"type": "record", "name": "p", "fields": [{"name": "zip", "type": ["null", "string"]}]}


def read(text: str, form: Schema) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json_rows("f", text.encode(), form).to_pylist()
    return found


def test_fields_that_the_schema_lacks_are_left_out_and_missing_ones_are_null() -> None:
    assert read('{"id": "a", "x": 1}\n\n{"id": "b", "v": 2}\n', schema(id="string", v=OPTIONAL_DOUBLE)) == [
        {"id": "a", "v": None},
        {"id": "b", "v": 2.0},
    ]


def test_numbers_as_texts_and_texts_of_numbers() -> None:
    assert read('{"id": 7, "v": "4.5"}\n{"id": true, "v": 1}', schema(id="string", v=OPTIONAL_DOUBLE)) == [
        {"id": "7", "v": 4.5},
        {"id": "true", "v": 1.0},
    ]


def test_types_that_json_has_not() -> None:
    row = {"at": 1_000_000, "on": 1, "cost": "1.5", "tags": {"a": 1}, "place": {"zip": "1"}, "all": [1, 2]}
    form = schema(
        at=MICROS,
        on=DAYS,
        cost=MONEY,
        tags={"type": "map", "values": "int"},
        place=PLACE,
        all={"type": "array", "items": "int"},
    )
    (found,) = read(json.dumps(row), form)
    assert found["at"] == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc)
    assert (found["on"], found["cost"]) == (dt.date(1970, 1, 2), Decimal("1.50"))
    assert (found["tags"], found["place"], found["all"]) == ([("a", 1)], {"zip": "1"}, [1, 2])


def test_times_as_texts() -> None:
    (found,) = read('{"at": "2026-01-02T03:04:05Z", "on": "2026-01-02"}', schema(at=MICROS, on=DAYS))
    assert found == {"at": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc), "on": dt.date(2026, 1, 2)}


def test_times_of_day_bytes_and_uuids() -> None:
    noon, fixed = {"type": "int", "logicalType": "time-millis"}, {"type": "fixed", "name": "f", "size": 2}
    form = schema(at=noon, raw="bytes", two=fixed, key={"type": "string", "logicalType": "uuid"})
    text = "6f1e9f0c-9c3c-4b7a-8a57-1e1f0d3c2b1a"
    (found,) = read(json.dumps({"at": 43_200_000, "raw": "é", "two": "ab", "key": text}), form)
    assert found == {"at": dt.time(12), "raw": "é".encode(), "two": b"ab", "key": text}
    with pytest.raises(InputError, match='f, line 1: column two: "abc" is no fixed'):
        read('{"at": 1, "raw": "", "two": "abc", "key": ""}', form)


def test_arrow_and_lines_are_read_alike() -> None:
    text = b'{"id": "a", "v": 1.5, "n": 3, "at": 5, "on": 6, "place": {"zip": null}, "yes": true}\n{"id": "b"}\n'
    form = schema(
        id="string", v=OPTIONAL_DOUBLE, n=["null", "long"], at=["null", MICROS], on=["null", DAYS],
        place=["null", PLACE], yes=["null", "boolean"],
    )  # fmt: skip
    fast = _read_by_arrow(text, form)
    assert fast is not None
    slow, _ = _read_each(enumerate(text.splitlines()), form, lambda at: Line("f", at), rejected=None)
    assert fast.equals(slow)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a", "n": 1', "f, line 2: not JSON"),
        ('{"id": "a"}', "f, line 2: column n is required, and has no value"),
        ('{"id": "a", "n": "soon"}', 'f, line 2: column n: "soon" is no long'),
        ('{"id": "a", "n": 1.5}', "f, line 2: column n: .*1.5.* is no long"),
        ('{"id": "a", "n": 9223372036854775808}', "f, line 2: column n: 9223372036854775808 is no long"),
        ("[1]", "f, line 2: not a JSON object"),
    ],
)
def test_a_line_that_does_not_fit_is_named(line: str, message: str) -> None:
    good = '{"id": "a", "n": 1}\n'
    with pytest.raises(InputError, match=message):
        read(good + line, schema(id="string", n="long"))
    rejected = Rejected()
    rows = json_rows("f", (good + line).encode(), schema(id="string", n="long"), rejected)
    assert rows.num_rows == 1
    kept = rejected.taken()
    assert kept is not None
    assert kept.select(["source", "line", "record"]).to_pylist() == [{"source": "f", "line": 2, "record": line}]


def test_other_texts_than_the_symbols_of_an_enum_are_refused() -> None:
    form = schema(e={"type": "enum", "name": "E", "symbols": ["A", "B"]})
    assert read('{"e": "B"}', form) == [{"e": "B"}]
    with pytest.raises(InputError, match='f, line 1: column e: "C" is no enum'):
        read('{"e": "C"}', form)


def test_other_bytes_than_text_are_named() -> None:
    with pytest.raises(InputError, match="f, line 2: this is not in UTF-8: byte 9 is 0xff"):
        json_rows("f", b'{"id": "a"}\n{"id": "\xff"}', schema(id="string"))


def csv(text: str, form: CsvForm, columns: Schema | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = csv_rows("f", text.encode(), columns, form).to_pylist()
    return found


HEADER = CsvForm(header=True)
PAIR = schema(id="string", v=OPTIONAL_DOUBLE)


def test_columns_of_csv_are_found_by_the_header_or_by_their_order() -> None:
    assert csv("v,id\n1,a\n", HEADER, PAIR) == [{"id": "a", "v": 1.0}]
    assert csv("a,1\n", CsvForm(), PAIR) == [{"id": "a", "v": 1.0}]
    with pytest.warns(ColumnOrderWarning, match="the header has x, y, which are read as id, v"):
        assert csv("x,y\na,1\n", HEADER, PAIR) == [{"id": "a", "v": 1.0}]
    with pytest.raises(InputError, match="f, line 1: 3 columns, the schema has 2"):
        csv("a,1,2\n", CsvForm(), PAIR)


def test_empty_values_are_missing_quoted_or_not() -> None:
    assert csv(
        'id;v\na;\n"";1\n',
        CsvForm(Dialect(separator=";"), header=True),
        schema(id=["null", "string"], v=OPTIONAL_DOUBLE),
    ) == [
        {"id": "a", "v": None},
        {"id": None, "v": 1.0},
    ]


def test_quotes_are_escaped_as_spark_does_and_a_backslash_elsewhere_stays() -> None:
    assert csv('id,v\n"say \\"x\\"",1\n', HEADER, PAIR)[0]["id"] == 'say "x"'
    assert csv("id,v\nC:\\d,1\n", HEADER, PAIR)[0]["id"] == "C:\\d"


def test_without_a_schema_types_fit_the_texts() -> None:
    rows = csv_rows("f", b"a,b,c\n1,1.5,x\n2,,y\n", None, HEADER)
    assert [str(field.type) for field in rows.schema] == ["int32", "double", "string"]
    assert csv("1,2\n", CsvForm()) == [{"_c0": 1, "_c1": 2}]


def test_times_of_csv_without_a_zone_are_in_utc() -> None:
    text = "at\n2026-01-02 10:00:00\n2026-01-02T10:00:00+02:00\n,\n".replace(",", '""')
    rows = csv(text, HEADER, schema(at=["null", MICROS]))
    assert [row["at"] and row["at"].hour for row in rows] == [10, 8, None]
    with pytest.raises(InputError, match=r"f, line 3: column at: timestamp\[us, tz=UTC\]: invalid value 'soon'"):
        csv("at\n2026-01-02\nsoon\n", HEADER, schema(at=["null", MICROS]))


def test_values_of_csv_that_do_not_fit_are_named() -> None:
    with pytest.raises(InputError, match=r"f, line 3: column v: .*'soon'"):
        csv("id,v\na,1\nb,soon\n", HEADER, PAIR)
    with pytest.raises(InputError, match="f, line 2: column id is required, and has no value"):
        csv("id,v\n,1\n", HEADER, PAIR)


def test_signed_numbers_of_csv_are_read_as_java_does() -> None:
    form = schema(id="string", n="long", v=["null", "double"], cost=["null", MONEY])
    found = csv("id,n,v,cost\n+1,+1,+1.5,+2.25\n2,-1,,\n", HEADER, form)
    assert found[0] == {"id": "+1", "n": 1, "v": 1.5, "cost": Decimal("2.25")}
    assert found[1] == {"id": "2", "n": -1, "v": None, "cost": None}
    with pytest.raises(InputError, match=r"f, line 3: column n: .*'\+x'"):
        csv("id,n,v,cost\na,+1,,\nb,+x,,\n", HEADER, form)


@pytest.mark.parametrize("header", [True, False])
def test_lines_of_csv_that_do_not_fit_are_kept_apart(header: bool) -> None:
    form = schema(id="string", n=["null", "long"])
    lines = ["id,n"] if header else ["first,soon", "second,0"]
    bad = {
        "b,soon": "column n: .*'soon'",
        "c": "Expected 2 columns, got 1",
        ",7": "column id is required",
        '"d" x,1,2': "",
    }
    text = "\n".join([*lines, "", "a,+1", *bad, "z,9", ""])
    rejected = Rejected()
    rows = csv_rows("f", text.encode(), form, CsvForm(header=header), rejected)
    assert rows["n"].to_pylist() == ([] if header else [0]) + [1, 9]
    kept = rejected.taken()
    assert kept is not None
    found = {row["record"]: row for row in kept.to_pylist()}
    start = len(lines) + 3
    assert [found[record]["line"] for record in bad] == list(range(start, start + len(bad)))
    assert not [record for record, why in bad.items() if not re.match(why, found[record]["error"])]
    assert header == ("first,soon" not in found)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_records_of_several_lines_that_do_not_fit_are_kept_apart(end: str) -> None:
    records = ['a,"x', 'y",1', "", 'b,"z', '",soon', "c,d", "# no, record", 'e,"', '",2', 'f,"g', 'h",', ""]
    form = CsvForm(Dialect(comment="#"), header=True, multiline=True)
    data, columns = end.join(["id,note,n", *records]).encode(), schema(id="string", note="string", n="long")
    rejected = Rejected()
    rows = csv_rows("f", data, columns, form, rejected)
    assert rows.to_pylist() == [{"id": "a", "note": "x\ny", "n": 1}, {"id": "e", "note": "\n", "n": 2}]
    kept = rejected.taken()
    assert kept is not None
    assert [(row["line"], row["record"]) for row in kept.to_pylist()] == [
        (5, 'b,"z\n",soon'),
        (7, "c,d"),
        (11, 'f,"g\nh",'),
    ]
    with pytest.raises(InputError, match=r"f, line 5: column n: .*'soon'"):
        csv_rows("f", data, columns, form)


def test_other_bytes_than_text_and_long_values_of_csv_are_bad_lines() -> None:
    rejected = Rejected()
    data = b"id,n\na,1\n\xff,2\nb," + b"7" * 5000 + b"\nc,3\n"
    rows = csv_rows("f", data, schema(id="string", n="long"), HEADER, rejected)
    assert rows["n"].to_pylist() == [1, 3]
    kept = rejected.taken()
    assert kept is not None
    assert kept["line"].to_pylist() == [3, 4]
    assert max(map(len, kept["error"].to_pylist())) < 200
