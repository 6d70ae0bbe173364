"""File names of a table: base files, log files, markers and partition metafiles, parsed and printed in one place.

Format guide chapter 4. Everything that a name contains is parsed here, without opening the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from skep_format.errors import FormatError
from skep_format.escaping import unescape
from skep_format.instant_time import InstantTime

META_FOLDER: Final = ".hoodie"
PARTITION_METAFILE: Final = ".hoodie_partition_metadata"
DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

_LOG = re.compile(
    r"\.(?P<id>[^._]+)_(?P<instant>[^.]*)\.(?P<ext>log|archive)\.(?P<version>\d+)(_(?P<token>\d+-\d+-\d+)(?P<cdc>\.cdc)?)?"
)
_EXTERNAL: Final = "_hudiext"
_EXTERNAL_FOLDER: Final = "_fg%3D"
_BASE = re.compile(r"(?P<id>[^._][^_.]*)_(?P<token>[^_]*)_(?P<instant>[^_.]+)\.(?P<ext>parquet|orc|hfile)")


class BaseFormat(str, Enum):
    """Base file formats by the value of `hoodie.table.base.file.format`."""

    PARQUET = "PARQUET"
    ORC = "ORC"
    HFILE = "HFILE"

    @property
    def extension(self) -> str:
        """The file name's extension, without the dot."""
        return self.value.lower()

    @classmethod
    def of(cls, path: str) -> BaseFormat | None:
        """That of a file, by the extension of its name; None of one with another extension, or without any."""
        _, dot, extension = path.rpartition(".")
        return next((each for each in cls if dot and each.extension == extension), None)


class FileGroupId(NamedTuple):
    """The identity of a file group (Hudi: HoodieFileGroupId). Tuples compare and hash alike."""

    partition_path: str
    file_id: str


class MarkerType(str, Enum):
    """How a write uses the file that a marker announces (format guide 4.5; Hudi: IOType)."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """`<fileId>_<writeToken>_<instantTime>.<ext>`; the instant is also the base instant of the slice."""

    file_id: str
    write_token: str
    instant_time: InstantTime
    format: BaseFormat = BaseFormat.PARQUET
    listed: str | None = None
    """How metadata names a file of another table format; see `ExternalFileName`."""

    def __str__(self) -> str:
        if self.listed is not None:
            return self.listed
        return f"{self.file_id}_{self.write_token}_{self.instant_time}.{self.format.extension}"

    @classmethod
    def parse(cls, name: str) -> BaseFileName | None:
        """None when `name` is not the name of a base file."""
        match = _BASE.fullmatch(name)
        if match is None:
            return None
        return cls(match["id"], match["token"], InstantTime(match["instant"]), BaseFormat(match["ext"].upper()))


@dataclass(frozen=True, slots=True)
class ExternalFileName:
    """`<file name>_<instantTime>[_fg%3D<folder>]_hudiext`: a base file that another table format wrote, as commits and
    the metadata table name it (Hudi: ExternalFilePathUtil). The file itself has the name in front, in a folder below
    its partition where one is stated.
    """

    path: str
    """Of the file, relative to its partition; Hudi's id of its file group, too."""
    instant_time: InstantTime

    @classmethod
    def parse(cls, name: str) -> ExternalFileName | None:
        """None when `name` is not marked so. FormatError for a mark without an instant time."""
        if not name.endswith(_EXTERNAL):
            return None
        marked, separator, folder = name.removesuffix(_EXTERNAL).partition(_EXTERNAL_FOLDER)
        file, underscore, time = marked.rpartition("_")
        if not underscore or not file or not time.isdigit():
            raise FormatError(
                f"file name {name} is marked as one of another table format, and has no instant time",
                path=name,
                expected=f"<file name>_<instant time>{_EXTERNAL}",
            )
        return cls(join(unescape(folder) if separator else "", file), InstantTime(time))

    def base_file_name(self, name: str) -> BaseFileName:
        """What `name`, from which this was parsed, is among base files."""
        extension = self.path.rpartition(".")[2].upper()
        kind = BaseFormat(extension) if extension in BaseFormat.__members__ else BaseFormat.PARQUET
        return BaseFileName(self.path, "", self.instant_time, kind, name)


@dataclass(frozen=True, slots=True)
class LogFileName:
    """`.<fileId>_<instant>.log.<version>_<writeToken>[.cdc]`.

    `instant_time` is the base instant of the slice in table version 6, that of the delta commit from version 8 on
    (see `format.LogNaming`). `extension` is `log`, or `archive` for a file of the archived timeline.
    """

    file_id: str
    instant_time: InstantTime
    version: int
    write_token: str | None = None
    cdc: bool = False
    extension: str = "log"

    def __str__(self) -> str:
        token = "" if self.write_token is None else f"_{self.write_token}" + (".cdc" if self.cdc else "")
        return f".{self.file_id}_{self.instant_time}.{self.extension}.{self.version}{token}"

    @classmethod
    def parse(cls, name: str) -> LogFileName | None:
        """None when `name` is not the name of a log file."""
        match = _LOG.fullmatch(name)
        if match is None:
            return None
        return cls(
            match["id"],
            InstantTime(match["instant"]),
            int(match["version"]),
            match["token"],
            match["cdc"] is not None,
            match["ext"],
        )

    @property
    def sort_key(self) -> tuple[str, int, str, bool]:
        """The order of log files within a slice: instant, version as a number, token as text (missing first), cdc."""
        return self.instant_time, self.version, self.write_token or "", self.cdc


@dataclass(frozen=True, slots=True)
class Marker:
    """A direct marker: `.hoodie/.temp/<instant>/<partition>/<file name>.marker.<TYPE>`."""

    instant_time: InstantTime
    partition_path: str
    file_name: str
    type: MarkerType

    @property
    def path(self) -> str:
        """Relative to the table's base."""
        return join(marker_folder(self.instant_time), self.line)

    @property
    def line(self) -> str:
        """Relative to the instant's marker folder, as the lists of Hudi's timeline server have it."""
        return join(self.partition_path, f"{self.file_name}.marker.{self.type.value}")

    @classmethod
    def parse(cls, instant_time: InstantTime, relative_path: str) -> Marker:
        """Parses a path relative to the instant's marker folder. FormatError when it is not the path of a marker."""
        folder, _, name = relative_path.rpartition("/")
        file_name, separator, kind = name.rpartition(".marker.")
        if not separator or kind not in MarkerType.__members__:
            raise FormatError(
                f"not a marker name: {relative_path}", path=relative_path, expected="<file>.marker.<TYPE>"
            )
        return cls(instant_time, folder, file_name, MarkerType(kind))

    @property
    def data_path(self) -> str:
        """The announced data file, relative to the table's base."""
        return join(self.partition_path, self.file_name)


def marker_folder(instant_time: InstantTime) -> str:
    """Where an instant's markers are, relative to the table's base."""
    return f"{META_FOLDER}/.temp/{instant_time}"


def join(*parts: str) -> str:
    """Joins relative paths without their empty parts, such as the partition path of a non-partitioned table."""
    return "/".join(part for part in parts if part)
