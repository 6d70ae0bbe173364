"""Numbers as Java prints them: the text Hudi gives to a value whose column became a string."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = r"^(?P<sign>-?)(?P<whole>\d+)(?:\.(?P<fraction>\d+))?(?:e(?P<exponent>[+-]?\d+))?$"


def java_float(column: pa.Array) -> pa.Array:
    """Float.toString and Double.toString: plain from 1e-3 to below 1e7, else one digit, the point and `E`."""
    text = column.cast(pa.string())
    size = pc.abs(column)
    plain = pc.or_(pc.equal(size, 0), pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)))
    pointed = pc.if_else(pc.match_substring(text, "."), text, pc.binary_join_element_wise(text, ".0", ""))
    special = pc.if_else(pc.is_nan(column), "NaN", pc.if_else(pc.greater(column, 0), "Infinity", "-Infinity"))
    finite = pc.if_else(plain, pointed, _scientific(text))
    return pc.if_else(pc.is_finite(column), finite, special).cast(pa.string())


def _scientific(text: pa.Array) -> pa.Array:
    """Digits and exponent normalised: the first significant digit is before the point."""
    parts = pc.extract_regex(text, _NUMBER)
    whole, fraction = pc.struct_field(parts, "whole"), pc.coalesce(pc.struct_field(parts, "fraction"), "")
    exponent = pc.coalesce(pc.struct_field(parts, "exponent"), "")
    digits = pc.binary_join_element_wise(whole, fraction, "")
    significant = pc.utf8_ltrim(digits, "0")
    leading_zeros = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
    given = pc.cast(pc.if_else(pc.equal(exponent, ""), "0", pc.replace_substring(exponent, "+", "")), pa.int32())
    power = pc.add(given, pc.subtract(pc.subtract(pc.utf8_length(whole), 1), leading_zeros))
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(significant, 1), "0")
    return pc.binary_join_element_wise(
        pc.struct_field(parts, "sign"),
        pc.utf8_slice_codeunits(significant, 0, 1),
        ".",
        pc.if_else(pc.equal(rest, ""), "0", rest),
        "E",
        power.cast(pa.string()),
        "",
    )
