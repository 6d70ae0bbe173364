"""How CSV files of a source are cut, from the keys `hoodie.streamer.csv.…`."""

from __future__ import annotations

import codecs
from typing import Final

from skep_format.errors import OptionError
from skep_format.options import Option, Options
from skep_format.rowfiles.csv_cut import NONE, Dialect
from skep_format.rowfiles.csv_text import CsvForm
from skep_stream import options as names

_SEPARATORS: Final = {r"\t": "\t", r"\r": "\r", r"\b": "\b", r"\f": "\f", r"\"": '"', r"\'": "'", r"\\": "\\"}


def csv_form(options: Options) -> CsvForm:
    """The form of the files. OptionError for what is no character, or no encoding."""

    def character(option: Option[str], none: str = NONE) -> str:
        text = options.value(option) or none
        if len(text) == 1:
            return text
        raise OptionError(f"{option.key}: {text!r} is not one character", option=option.key, found=text)

    given = options.value(names.CSV_SEPARATOR)
    separator = _SEPARATORS.get(given, given)
    if len(separator) != 1 or given == "\\":
        raise OptionError(
            f"{names.CSV_SEPARATOR.key}: {given!r} is not one character",
            hint=r"a backslash is \\, a tab \t",
            option=names.CSV_SEPARATOR.key,
            found=given,
        )
    encoding = options.value(names.CSV_ENCODING)
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise OptionError(
            f"{names.CSV_ENCODING.key}: {encoding} is not known", option=names.CSV_ENCODING.key, found=encoding
        ) from error
    quote, escape = character(names.CSV_QUOTE), character(names.CSV_ESCAPE)
    dialect = Dialect(
        separator,
        quote,
        escape,
        character(names.CSV_ESCAPE_OF_ESCAPE, NONE if quote == escape else escape),
        character(names.CSV_COMMENT),
        options.value(names.CSV_NULL),
        options.value(names.CSV_EMPTY),
        options.value(names.CSV_TRIMS_LEFT),
        options.value(names.CSV_TRIMS_RIGHT),
    )
    return CsvForm(dialect, options.value(names.CSV_HEADER), options.value(names.CSV_MULTILINE), encoding)
