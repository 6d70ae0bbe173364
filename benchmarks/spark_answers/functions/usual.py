"""Arguments that functions are usually given: constants, and kinds that meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.spark_answers.functions.values import KINDS, NUMBERS, SCALARS

UNITS: Final = (
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second", "years", "months", "days", "hours"),
    *(
        "minutes",
        "seconds",
        "dayofweek",
        "doy",
        "dow",
        "yearofweek",
        "millisecond",
        "microsecond",
        "weeks",
        "mon",
        "mm",
    ),
)
_UNITS = tuple(f"'{each}'" for unit in UNITS for each in (unit, unit.upper()))
_PARTS = tuple(f"'{each}'" for unit in UNITS[:8] for each in (unit, unit.upper()))
_ROUNDED = (*_PARTS, "'MM'", "'MON'", "'YY'", "'YYYY'", "'mm'", "'yy'", "'yyyy'", "'DD'", "'dd'")
_FORMATS = (
    *("'yyyy-MM-dd'", "'yyyy-MM-dd HH:mm:ss'", "'dd/MM/yyyy'", "'MM/dd/yyyy'", "'yyyyMMdd'", "'yyyyMM'", "'yyyy-MM'"),
    *("'MM'", "'M'", "'yyyy'", "'yy'", "'y'", "'dd'", "'d'", "'HH:mm'", "'HH:mm:ss'", "'HH'", "'H'", "'mm'", "'ss'"),
    *("'yyyy-MM-dd HH:mm'", "'yyyy-MM-dd HH'", "'yyyy/MM/dd'", "'dd.MM.yyyy'", "'dd-MM-yyyy'", "'MMM'", "'MMMM'"),
    *("'MMM yyyy'", "'E'", "'EEE'", "'EEEE'", "'D'", "'Q'", "'a'", "'hh:mm a'", "'yyyyMMddHHmmss'", "'S'", "'SSS'"),
    *("'yyyy-MM-dd HH:mm:ss.SSS'", "'yyyy-MM-dd HH:mm:ss.SSSSSS'", "'dd MMM yyyy'", "'MMMM d, yyyy'", "'d/M/yyyy'"),
)
_SMALL = ("0", "1", "2", "3", "4", "5", "6", "8", "10", "20", "-1", "-2", "-3")
_SEPARATORS = ("','", "' '", "'-'", "'a'", "'_'", "''", "', '", "':'", "'/'", "'.'")
_LIKE = ("'%b%'", "'a%'", "'%a'", "'a_c'", "'abc'", "'%'", "''", "'_'", "'%b%c'", "'a%c'", "'A%'", "'%1%'", "'%\\%%'")
_EXPRESSIONS = (
    *("'a'", "'b'", "','", "' '", "'-'", "'_'", "'[a-z]+'", "'([a-z]+)'", "'[A-Z]'", "'[0-9]+'", "'([0-9]+)'"),
    *("'\\d+'", "'(\\d+)'", "'\\s+'", "'\\w+'", "'(\\w+)'", "'[^a-zA-Z0-9]'", "'[^0-9]'", "'^a'", "'c$'", "'a.*c'"),
    *("'^[a-z]+$'", "'(.)(.)'", "', *'", "'[,-]'", "'\\.'", "''", "'^[0-9]+$'", "'(?i)abc'", "'^\\d{4}'", "'[aeiou]'"),
)
_TEMPORAL = ("date", "timestamp", "timestamp_ntz")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_LISTS = tuple(each for each in KINDS if each.startswith("array<"))
_MAPS = tuple(each for each in KINDS if each.startswith("map<"))
ALL: Final = tuple(KINDS)
FAMILIES: Final = (NUMBERS, _TEMPORAL, ("string", "binary"), _LISTS, _MAPS)
PERCENTS: Final = ("0", "0.1", "0.25", "0.5", "0.75", "0.9", "0.95", "0.99", "1")
_S = ("string",)
_SB = ("string", "binary")

EXTRAS: Final[tuple[tuple[str, tuple[Sequence[str], ...]], ...]] = (
    *((each, (_UNITS, (*_TEMPORAL, "day_interval"))) for each in ("date_part", "datepart", "extract")),
    ("date_trunc", (_ROUNDED, (*_TEMPORAL, "string"))),
    ("trunc", ((*_TEMPORAL, "string"), _ROUNDED)),
    *((each, (_PARTS, (*_WHOLE, "1", "-1"), _TEMPORAL)) for each in ("timestampadd", "dateadd", "date_add")),
    *((each, (_PARTS, _TEMPORAL, _TEMPORAL)) for each in ("timestampdiff", "datediff", "date_diff")),
    ("date_format", ((*_TEMPORAL, "string"), _FORMATS)),
    *((each, (_S, _FORMATS)) for each in ("to_date", "to_timestamp", "to_timestamp_ntz", "to_timestamp_ltz")),
    ("to_date", (_TEMPORAL,)),
    ("try_to_timestamp", (_S, _FORMATS)),
    *((each, (("string", *_TEMPORAL), _FORMATS)) for each in ("unix_timestamp", "to_unix_timestamp")),
    ("from_unixtime", (_WHOLE, _FORMATS)),
    *((each, (_TEMPORAL, (*_SMALL, "7", "30", "90", "365", "-7", "-30"))) for each in ("date_add", "date_sub")),
    ("add_months", ((*_TEMPORAL, "string"), (*_SMALL, "12", "-12"))),
    ("next_day", (("date", "timestamp", "string"), ("'MO'", "'TU'", "'WE'", "'monday'", "'Sunday'", "'FRI'"))),
    ("months_between", (_TEMPORAL, _TEMPORAL)),
    ("months_between", (_TEMPORAL, _TEMPORAL, ("true", "false"))),
    *(
        (each, (_TEMPORAL, ("'UTC'", "'Europe/Berlin'", "'America/New_York'", "'Asia/Tokyo'", "'+02:00'")))
        for each in ("from_utc_timestamp", "to_utc_timestamp")
    ),
    ("convert_timezone", (("'UTC'", "'Europe/Berlin'"), ("'America/New_York'", "'UTC'"), _TEMPORAL)),
    *((each, (NUMBERS, (*_SMALL, "-4"))) for each in ("round", "bround", "ceil", "floor", "ceiling")),
    *((each, (_SB, _SMALL)) for each in ("left", "right", "repeat", "substring", "substr", "get", "lpad", "rpad")),
    *((each, (_SB, _SMALL, (*_SMALL, "100"))) for each in ("substring", "substr")),
    *((each, (_S, ("int",), ("int",))) for each in ("substring", "substr")),
    *((each, (_S, _SMALL, ("' '", "'0'", "'x'", "'*'", "'ab'", "''", "string"))) for each in ("lpad", "rpad")),
    ("space", (_SMALL,)),
    ("array_repeat", (ALL, _SMALL[:4])),
    ("sequence", (("1",), ("tinyint",))),
    *((each, (_LISTS, _SMALL)) for each in ("element_at", "try_element_at", "get", "[]", "array_position")),
    *(
        (each, (_MAPS, ("'a'", "'b'", "1", "2", "string", "int")))
        for each in ("element_at", "try_element_at", "[]", "map_contains_key")
    ),
    ("[]", (_LISTS, _WHOLE)),
    ("[]", (("struct<a:int,b:string>",), ("'a'",))),
    ("slice", (_LISTS, ("1", "2", "-1", "-2", "int"), ("0", "1", "2", "3", "5", "int"))),
    *(
        (each, (_LISTS, ("1", "'a'", "int", "bigint", "string", "double", "date")))
        for each in ("array_contains", "array_position", "array_remove", "array_append", "array_prepend")
    ),
    ("array_insert", (_LISTS, ("1", "2", "-1", "int"), ("1", "'a'", "int", "bigint", "string", "double", "date"))),
    ("array_join", (("array<string>", "array<int>"), _SEPARATORS)),
    ("array_join", (("array<string>", "array<int>"), _SEPARATORS, ("'NULL'", "''", "'x'"))),
    ("sort_array", (_LISTS,)),
    ("sort_array", (_LISTS, ("true", "false"))),
    *(
        (each, (_LISTS,))
        for each in (
            "array_sort",
            "array_max",
            "array_min",
            "array_distinct",
            "array_compact",
            "size",
            "cardinality",
            "array_size",
            "flatten",
            "reverse",
            "to_json",
            "map_from_entries",
        )
    ),
    *((each, (_MAPS,)) for each in ("size", "cardinality", "map_keys", "map_values", "map_entries", "to_json")),
    ("array_sort", (_LISTS,)),
    *((each, (NUMBERS, ("0", "1", "2", "3", "0.5", "-1", "10"))) for each in ("pow", "power")),
    *((each, (NUMBERS, ("2", "3", "5", "7", "10", "100", "-3"))) for each in ("mod", "pmod", "%", "div", "/", "*")),
    *((each, (NUMBERS, ("1", "2", "10", "100"))) for each in ("+", "-", "*", "/", "<", ">", "<=", ">=", "=", "!=")),
    *(
        (each, (_WHOLE, ("0", "1", "2", "3", "8", "31", "int")))
        for each in ("shiftleft", "shiftright", "shiftrightunsigned", "getbit", "bit_get", "&", "^")
    ),
    *((each, (("2", "10", "3", "1.5"), NUMBERS)) for each in ("log",)),
    ("format_number", (NUMBERS, ("0", "1", "2", "3", "'#,###.##'", "'0.00'", "'#,##0'"))),
    ("conv", (("string", "int", "bigint"), ("10", "16", "2"), ("16", "2", "10", "8", "36"))),
    ("width_bucket", (("double", "int"), ("0",), ("10", "100"), ("5", "10"))),
    *(
        (each, (NUMBERS, ("0", "1", "0.0", "0.5")))
        for each in ("greatest", "least", "coalesce", "nvl", "ifnull", "nullif")
    ),
    *(
        (each, (("string",), ("''", "'a'", "'n/a'", "'unknown'")))
        for each in (
            "greatest",
            "least",
            "coalesce",
            "nvl",
            "ifnull",
            "nullif",
            "=",
            "!=",
            "<",
            ">",
            "<=",
            ">=",
            "<>",
            "==",
            "<=>",
        )
    ),
    *(
        (each, (_TEMPORAL, ("'2024-02-29'", "'1970-01-01'", "'2024-02-29 10:11:12.123456'")))
        for each in ("=", "!=", "<", ">", "<=", ">=", "<=>", "coalesce")
    ),
    ("if", (("boolean",), ("1", "0", "'a'", *SCALARS), ("0", "'b'", *SCALARS))),
    ("nvl2", (("int", "string"), ("1", *SCALARS), ("0", *SCALARS))),
    *((each, (SCALARS, SCALARS)) for each in ("coalesce", "nvl", "ifnull", "nullif", "greatest", "least")),
    *(
        (each, tuple([[kind]] * count))
        for each in ("coalesce", "greatest", "least", "array", "in")
        for kind in ALL
        for count in (2, 3, 4)
    ),
    ("array", (ALL,)),
    *(("array", (kinds, kinds)) for kinds in (NUMBERS, ("string", "1", "'a'"))),
    ("in", (SCALARS, ("1", "'a'", "'2024-02-29'"))),
    ("in", (("int", "bigint", "string"), ("1", "'a'"), ("2", "'b'"))),
    ("map", (("string", "int", "'a'"), ("string", "int", "1"))),
    ("map", (("'a'",), ("string", "int"), ("'b'",), ("string", "int"))),
    *(
        (each, (_S, _EXPRESSIONS))
        for each in (
            "rlike",
            "regexp_like",
            "regexp",
            "regexp_count",
            "regexp_substr",
            "regexp_instr",
            "split",
            "regexp_extract",
            "regexp_extract_all",
        )
    ),
    *((each, (_S, _EXPRESSIONS, ("0", "1", "2"))) for each in ("regexp_extract", "regexp_extract_all")),
    ("split", (_S, _EXPRESSIONS, ("-1", "0", "1", "2", "3"))),
    ("split", (_S, ("':'", "'/'", "'[.]'", "'='", "'&'"))),
    ("regexp_replace", (_S, _EXPRESSIONS, ("''", "'x'", "' '", "'-'", "'$1'", "'_'"))),
    *((each, (_SB, _LIKE)) for each in ("like", "ilike")),
    *(
        (each, (_SB, ("'a'", "'b'", "'abc'", "''", "string", "binary")))
        for each in ("contains", "startswith", "endswith")
    ),
    ("concat_ws", (_SEPARATORS, ("string", "array<string>", "int"))),
    ("concat_ws", (_SEPARATORS, ("string", "int", "date"), ("string", "int", "'a'"))),
    ("concat_ws", (_SEPARATORS, ("string",), ("string",), ("string",))),
    ("concat", (("string", "'a'", "int", "bigint", "date", "double"), ("string", "'a'", "' '", "'-'", "int"))),
    ("concat", (("string", "'a'", "int"), ("string", "' '", "'-'", "', '"), ("string", "int", "date", "'a'"))),
    ("||", (("string", "'a'", "int", "bigint", "date", "double"), ("string", "'a'", "' '", "'-'", "int"))),
    ("substring_index", (_S, _SEPARATORS, ("1", "2", "-1", "0", "int"))),
    ("split_part", (_S, _SEPARATORS, ("1", "2", "3", "-1"))),
    *(
        (each, (("'a'", "'b'", "','", "''", "string"), _S))
        for each in ("locate", "position", "charindex", "find_in_set")
    ),
    ("locate", (("'a'", "'b'", "string"), _S, ("1", "2", "int"))),
    ("instr", (_S, ("'a'", "'b'", "','", "''", "string"))),
    ("replace", (_S, ("'a'", "'b'", "','", "' '", "''", "'-'", "string"), ("''", "'x'", "' '", "'-'", "string"))),
    ("replace", (_S, ("'a'", "string"))),
    ("translate", (_S, ("'abc'", "'a'", "string"), ("'xyz'", "''", "'x'", "string"))),
    ("overlay", (_S, ("'x'", "string"), ("1", "2", "int"))),
    ("overlay", (_S, ("'x'", "string"), ("1", "2"), ("0", "1", "2"))),
    *((each, (_S,)) for each in ("trim", "ltrim", "rtrim", "btrim", "initcap", "soundex", "ascii", "length", "lower")),
    *((each, (("' '", "'a'", "'abc'", "string"), _S)) for each in ("ltrim", "rtrim")),
    ("btrim", (_S, ("' '", "'a'", "'abc'", "string"))),
    ("levenshtein", (_S, ("'abc'", "string"))),
    ("levenshtein", (_S, _S, ("2", "5"))),
    ("get_json_object", (_S, ("'$.a'", "'$.b'", "'$.b[0]'", "'$'"))),
    ("from_json", (_S, ("'a INT, b STRING'", "'map<string,string>'", "'array<int>'"))),
    ("parse_url", (_S, ("'HOST'", "'PATH'", "'QUERY'", "'PROTOCOL'", "'REF'", "'FILE'", "'AUTHORITY'", "'USERINFO'"))),
    ("parse_url", (_S, ("'QUERY'",), ("'k'", "'x'"))),
    *((each, (_SB, ("'utf-8'", "'UTF-8'"))) for each in ("encode", "decode")),
    ("to_binary", (_S, ("'utf-8'", "'hex'", "'base64'"))),
    ("sha2", (_SB, ("0", "224", "256", "384", "512"))),
    ("str_to_map", (_S, ("','",), ("'='", "':'"))),
    ("str_to_map", (_S,)),
    *(
        (each, (("'%s'", "'%d'", "'%05d'", "'%.2f'", "'%x'", "'%s %s'"), ("string", "int", "bigint", "double")))
        for each in ("format_string", "printf")
    ),
    *((each, (("'%s %s'", "'%s-%d'"), ("string", "int"), ("string", "int"))) for each in ("format_string", "printf")),
    *((each, (("'0'", "'a'", "'A'", "string"),)) for each in ("ascii", "char_length")),
    ("map_from_arrays", (("array<int>", "array<string>"), ("array<int>", "array<string>"))),
    *((each, (_MAPS, _MAPS)) for each in ("map_concat",)),
    *(
        (each, (_LISTS, _LISTS))
        for each in (
            "arrays_overlap",
            "array_union",
            "array_intersect",
            "array_except",
            "concat",
            "||",
            "=",
            "array_append",
        )
    ),
    *(
        (each, (NUMBERS, NUMBERS))
        for each in (
            "try_add",
            "try_subtract",
            "try_multiply",
            "try_divide",
            "mod",
            "pmod",
            "pow",
            "power",
            "atan2",
            "hypot",
            "log",
        )
    ),
    *(
        (each, ((*_TEMPORAL, "day_interval"), (*_TEMPORAL, "day_interval")))
        for each in ("try_add", "try_subtract", "+", "-")
    ),
    *((each, (("day_interval",), NUMBERS)) for each in ("*", "/", "try_multiply", "try_divide")),
    ("*", (NUMBERS, ("day_interval",))),
    *((each, (_TEMPORAL, _WHOLE)) for each in ("date_add", "date_sub", "add_months", "+", "-")),
    *((each, (("int",), ("int",), ("int",))) for each in ("make_date",)),
    ("make_date", (("int", "2024"), ("1", "2", "12", "tinyint"), ("1", "29", "31", "tinyint"))),
    *((each, (("0", "1", "int"), ("int",), ("int",), ("int",))) for each in ("make_dt_interval",)),
    *((each, (("int",),)) for each in ("make_dt_interval", "chr", "char", "hex", "bin", "factorial")),
    *((each, (ALL,)) for each in ("hash", "xxhash64", "isnull", "isnotnull", "string", "crc32", "md5", "sha", "sha1")),
    *((each, (ALL, ("int", "string"))) for each in ("hash", "xxhash64")),
    ("typeof", (ALL,)),
)
