"""File names of a table: base files, log files, markers and partition metafiles, parsed and printed in one place.

Format guide chapter 4. Everything a name can say is learnt here before a file is opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from skep_table.errors import FormatError

META_FOLDER: Final = ".hoodie"
PARTITION_METAFILE: Final = ".hoodie_partition_metadata"
DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

_LOG = re.compile(
    r"\.(?P<id>[^._]+)_(?P<instant>[^.]*)\.(?P<ext>log|archive)\.(?P<version>\d+)(_(?P<token>\d+-\d+-\d+)(?P<cdc>\.cdc)?)?"
)
_BASE = re.compile(r"(?P<id>[^._][^_.]*)_(?P<token>[^_]*)_(?P<instant>[^_.]+)\.(?P<ext>parquet|orc|hfile)")


class BaseFormat(str, Enum):
    """Base file formats by the value of `hoodie.table.base.file.format`."""

    PARQUET = "PARQUET"
    ORC = "ORC"
    HFILE = "HFILE"

    @property
    def extension(self) -> str:
        return self.value.lower()


class MarkerType(str, Enum):
    """What a marker announces (format guide 4.5)."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """`<fileId>_<writeToken>_<instantTime>.<ext>`; the instant is also the base instant of the slice."""

    file_id: str
    write_token: str
    instant_time: str
    format: BaseFormat = BaseFormat.PARQUET

    def __str__(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant_time}.{self.format.extension}"

    @classmethod
    def parse(cls, name: str) -> BaseFileName | None:
        """None when `name` is not a base file's."""
        match = _BASE.fullmatch(name)
        if match is None:
            return None
        return cls(match["id"], match["token"], match["instant"], BaseFormat(match["ext"].upper()))


@dataclass(frozen=True, slots=True)
class LogFileName:
    """`.<fileId>_<instant>.log.<version>_<writeToken>[.cdc]`.

    `instant_time` is the slice's base instant in table version 6, the delta commit's own from version 8 on.
    """

    file_id: str
    instant_time: str
    version: int
    write_token: str | None = None
    cdc: bool = False
    extension: str = "log"

    def __str__(self) -> str:
        token = "" if self.write_token is None else f"_{self.write_token}" + (".cdc" if self.cdc else "")
        return f".{self.file_id}_{self.instant_time}.{self.extension}.{self.version}{token}"

    @classmethod
    def parse(cls, name: str) -> LogFileName | None:
        """None when `name` is not a log file's."""
        match = _LOG.fullmatch(name)
        if match is None:
            return None
        return cls(
            match["id"], match["instant"], int(match["version"]), match["token"], match["cdc"] is not None, match["ext"]
        )

    @property
    def sort_key(self) -> tuple[str, int, str, bool]:
        """The order of log files within a slice: instant, version as a number, token as text (missing first), cdc."""
        return self.instant_time, self.version, self.write_token or "", self.cdc


@dataclass(frozen=True, slots=True)
class Marker:
    """A direct marker: `.hoodie/.temp/<instant>/<partition>/<file name>.marker.<TYPE>`."""

    instant_time: str
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
    def parse(cls, instant_time: str, relative_path: str) -> Marker:
        """From the path below the instant's marker folder. FormatError when it is not a marker's."""
        folder, _, name = relative_path.rpartition("/")
        file_name, separator, kind = name.rpartition(".marker.")
        if not separator or kind not in MarkerType.__members__:
            raise FormatError(
                f"not a marker name: {relative_path}", path=relative_path, expected="<file>.marker.<TYPE>"
            )
        return cls(instant_time, folder, file_name, MarkerType(kind))

    @property
    def data_path(self) -> str:
        return join(self.partition_path, self.file_name)


def marker_folder(instant_time: str) -> str:
    return f"{META_FOLDER}/.temp/{instant_time}"


def join(*parts: str) -> str:
    """Joins relative paths; empty parts (the partition path of a non-partitioned table) vanish."""
    return "/".join(part for part in parts if part)
