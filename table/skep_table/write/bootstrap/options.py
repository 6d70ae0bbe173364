"""The options of bootstraps, by Hudi's names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from skep_format.errors import OptionError
from skep_format.escaping import unescape
from skep_format.options import Options, Status, at_least, boolean, of_option, one_of, option
from skep_format.table_config.keys import BOOTSTRAP_INDEX_CLASS, BOOTSTRAP_INDEX_TYPE, simple_name
from skep_table.slices.options import BOOTSTRAP_BASE_PATH

E = TypeVar("E", bound=Enum)


class BootstrapMode(str, Enum):
    """What becomes of the files of a folder: only their keys are written into the table, or all of their rows."""

    METADATA_ONLY = "METADATA_ONLY"
    FULL_RECORD = "FULL_RECORD"


class Selector(str, Enum):
    """How folders get their modes, by the names of Hudi's classes."""

    METADATA_ONLY = "MetadataOnlyBootstrapModeSelector"
    FULL_RECORD = "FullRecordBootstrapModeSelector"
    REGEX = "BootstrapRegexModeSelector"


class PathTranslator(str, Enum):
    """How the path of a source folder becomes that of a partition, by the names of Hudi's classes."""

    IDENTITY = "IdentityBootstrapPartitionPathTranslator"
    DECODED = "DecodedBootstrapPartitionPathTranslator"


def _class_of(kind: type[E]) -> Callable[[str], E]:
    """A parser for class names of Hudi, with or without their package."""

    def parse(text: str) -> E:
        return one_of(kind)(simple_name(text.strip()))

    return parse


def _one_class(*names: str) -> Callable[[str], str]:
    """The same for classes between which nothing differs here."""

    def parse(text: str) -> str:
        name = simple_name(text.strip())
        if name not in names:
            raise ValueError(f"one of {', '.join(names)}")
        return name

    return parse


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"a regular expression ({error})") from error


def _only_true(text: str) -> bool:
    if not boolean(text):
        raise ValueError("true: without its index nobody finds the rows of a skeleton")
    return True


SELECTOR = option(
    "hoodie.bootstrap.mode.selector",
    _class_of(Selector),
    Selector.METADATA_ONLY,
    "The mode of each source folder: all METADATA_ONLY, all FULL_RECORD, or by a regular expression",
)
REGEX = option(
    "hoodie.bootstrap.mode.selector.regex",
    _pattern,
    re.compile(".*"),
    "What the whole path of a folder below the source must match for BootstrapRegexModeSelector",
)
REGEX_MODE = option(
    "hoodie.bootstrap.mode.selector.regex.mode",
    one_of(BootstrapMode),
    BootstrapMode.METADATA_ONLY,
    "The mode of the folders that match; the others get the other one",
)
TRANSLATOR = option(
    "hoodie.bootstrap.partitionpath.translator.class",
    _class_of(PathTranslator),
    PathTranslator.IDENTITY,
    "Partition paths are those of the source folders, or these with `%xx` decoded",
)
PARALLELISM = option(
    "hoodie.bootstrap.parallelism", at_least(1), 1500, "So many source files are read at the same time, at most"
)
PROVIDER = option(
    "hoodie.bootstrap.full.input.provider",
    _one_class("SparkParquetBootstrapDataProvider", "SparkOrcBootstrapDataProvider"),
    "SparkParquetBootstrapDataProvider",
    "Files are read by their endings, whichever of Hudi's two providers is named",
)
INDEX_CLASS = option(
    BOOTSTRAP_INDEX_CLASS,
    _one_class("HFileBootstrapIndex"),
    "HFileBootstrapIndex",
    "The bootstrap index is in HFiles",
)
INDEX_TYPE = option(BOOTSTRAP_INDEX_TYPE, _one_class("HFILE"), "HFILE", "The same, as Hudi 1.x states it")
INDEX_ENABLED = option("hoodie.bootstrap.index.enable", _only_true, True, "Skeletons have their index")
option(
    "hoodie.bootstrap.data.queries.only",
    boolean,
    False,
    "meta columns of skeletons are read where a query wants them",
    status=Status.NO_EFFECT,
)
LEAVE_OUT = option(
    "skep.bootstrap.leave_out",
    boolean,
    False,
    "Files that lie above the deepest folders, or are of another format, are left out of a bootstrap with a warning",
)


@dataclass(frozen=True, slots=True)
class BootstrapSettings:
    """What the options of a bootstrap choose."""

    selector: Selector = of_option(SELECTOR)
    regex: re.Pattern[str] = of_option(REGEX)
    regex_mode: BootstrapMode = of_option(REGEX_MODE)
    translator: PathTranslator = of_option(TRANSLATOR)
    parallelism: int = of_option(PARALLELISM)
    leaves_out: bool = of_option(LEAVE_OUT)

    @classmethod
    def of(cls, options: Options) -> BootstrapSettings:
        """OptionError for a value that an option does not take, also one that nothing here depends on."""
        options.value(INDEX_ENABLED)
        for known in (PROVIDER, INDEX_CLASS, INDEX_TYPE):
            options.value(known)
        return options.read(cls)

    def mode_of(self, folder: str) -> BootstrapMode:
        """The mode of a source folder, by its path below the source."""
        if self.selector is Selector.METADATA_ONLY:
            return BootstrapMode.METADATA_ONLY
        if self.selector is Selector.FULL_RECORD:
            return BootstrapMode.FULL_RECORD
        if self.regex.fullmatch(folder):
            return self.regex_mode
        full = self.regex_mode is BootstrapMode.FULL_RECORD
        return BootstrapMode.METADATA_ONLY if full else BootstrapMode.FULL_RECORD

    def partition_of(self, folder: str) -> str:
        """The partition path of a source folder."""
        return folder if self.translator is PathTranslator.IDENTITY else unescape(folder)


def source_path(options: Options) -> str:
    """The folder that the options name. OptionError where they name none."""
    path = options.value(BOOTSTRAP_BASE_PATH)
    if not path:
        key = BOOTSTRAP_BASE_PATH.key
        raise OptionError(f"a bootstrap needs the folder to make a table of: {key} is not set", option=key)
    return path
