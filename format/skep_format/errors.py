"""The errors of skep: one root, and below it the distinctions that a caller acts on.

Every error carries `fields`, the facts as data (table, path, instant, found, expected, …), and may carry a `hint`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Self


class SkepError(Exception):
    """Root of all errors that skep raises on purpose.

    `fields` holds the facts behind the message for programs; None values are left out. `hint` is a next step.
    """

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")
        self.message = message
        self.hint = hint
        self.fields: dict[str, object] = {name: value for name, value in fields.items() if value is not None}

    @classmethod
    def of_table(cls, name: str, problem: str, *, hint: str | None = None, **fields: object) -> Self:
        """An error of a table, which its message and its fields name."""
        return cls(f"table {name}: {problem}", hint=hint, table=name, **fields)

    @classmethod
    def of_file(cls, path: str, problem: str, *, hint: str | None = None, **fields: object) -> Self:
        """An error of a file, a folder or another address, which its message and its fields name."""
        return cls(f"{path}: {problem}", hint=hint, path=path, **fields)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark tasks, pools) with their fields.
        return _rebuild, (type(self), self.message, self.hint, self.fields)


def _rebuild(kind: type[SkepError], message: str, hint: str | None, fields: dict[str, object]) -> SkepError:
    return kind(message, hint=hint, **fields)


class TableError(SkepError):
    """The table at a path differs from the format or from the caller's arguments."""


class NotATableError(TableError):
    """There is no Hudi table at the path: no readable `.hoodie/hoodie.properties`."""


class TableExistsError(TableError):
    """A table is to be created where one exists."""


class FolderInUseError(TableError):
    """A table is to be created in a folder with commits without settings, or by a stream among other files.

    Fields: path, found.
    """


class TableMismatchError(TableError):
    """The table at the path is another one than asked for: name, type, keys or merge settings differ."""


class TableVersionError(TableError):
    """The table has a version that skep can't read, or can't write."""


class VersionChangeError(TableError):
    """The table has, or does, what the version that it is to get can't hold. Fields: table, found, expected."""


class MetadataTableError(TableError):
    """The table has a metadata table and the write is not allowed to drop it."""


class FormatError(SkepError, ValueError):
    """Bytes that break the format. Fields: path, offset, found, expected."""


class CorruptFileError(FormatError):
    """A checksum, a length or a magic number shows that a file is damaged or cut."""


class EncryptedFileError(SkepError):
    """An encrypted file can't be read or written: its keys are missing, wrong, or the KMS refuses them.

    Fields: path, column, option.
    """


class InputError(SkepError, ValueError):
    """The caller's rows or arguments can't be used. The table is untouched."""


class SchemaError(InputError):
    """Schemas that don't fit each other, or a type that skep can't hold. Fields: column, found, expected."""


class InexactValueError(SchemaError):
    """A value that the type of its column does not hold exactly. Fields: column, found, expected, value."""


class KeyFieldError(InputError):
    """A record key, partition or ordering column is missing or null. Fields: column, rows."""


class DuplicateKeyError(InputError):
    """An insert that is to fail on keys that the table holds met some. Fields: partition, rows."""


class OptionError(InputError):
    """An option is unknown, contradicts another or has a value of the wrong kind. Fields: option, found, expected."""


class KeywordError(OptionError, TypeError):
    """A keyword that a call does not take, misspelt for the most part. Fields: option, expected."""


class ChangesCleanedError(InputError):
    """Files or commits that a read of changes needs were cleaned or archived away. Fields: path, found, table."""


class PredicateError(InputError):
    """A filter can't be parsed, or names a column that is not there. `is_unsupported`: an engine may know it."""

    is_unsupported: bool = False


class DataLossError(SkepError):
    """A source no longer holds what a stream has not read yet."""


class UnsupportedError(SkepError, NotImplementedError):
    """A known feature that is not built (yet)."""


class WriteError(SkepError):
    """A write did not commit. The table reads as before it."""


class RowErrors(WriteError):
    """Rows failed in write tasks, so the commit was given up and rolled back. Fields: errors, sample."""


class ValidationError(WriteError):
    """A pre-commit validator objects to what the write would commit. Fields: query, found, expected, before, after."""


class CommitConflictError(WriteError):
    """Another writer committed first to the same file groups, or took the instant. Trying again may succeed."""


class RowsChangedError(WriteError):
    """Rows of a frame that Spark evaluated again were not the same ones: nothing is committed."""


class LeaseLostError(WriteError):
    """The writer's lock or heartbeat was lost before it completed. Fields: since, lock_id."""


class LockError(SkepError):
    """A lock was not granted, or was lost. Fields: holder, lock_id, waited_seconds."""


class LockTimeoutError(LockError):
    """The lock was not granted in time. Fields: holder, lock_id, waited_seconds."""


class StorageError(SkepError, OSError):
    """Storage can't be reached or refused a call. Fields: path, call. The cause is chained."""


def storage_error(call: str, path: str, where: object, cause: OSError) -> StorageError:
    """The error for a call that the system refused. `where` is the full address; `errno` is the cause's."""
    error = StorageError(
        f"{call} failed on {where}: {cause.strerror or cause}",
        hint=_STORAGE_HINTS.get(cause.errno or 0),
        path=path,
        call=call,
    )
    error.errno = cause.errno
    return error


def storage_failure(subject: str, cause: OSError) -> StorageError:
    """The error for a failure of the operating system; `subject` names the step that failed."""
    error = StorageError(f"{subject} failed: {cause}", hint=_STORAGE_HINTS.get(cause.errno or 0))
    error.errno = cause.errno
    return error


@contextmanager
def os_errors_named(subject: str) -> Iterator[None]:
    """Raises OSErrors of the block as StorageError with `subject` in the message."""
    try:
        yield
    except SkepError:
        raise
    except OSError as error:
        raise storage_failure(subject, error) from error


_STORAGE_HINTS: Final = {
    errno.ENOSPC: "free some space, then try again",
    errno.EDQUOT: "the quota is used up: free some space, then try again",
    errno.EFBIG: "the file system, or a limit of this process (ulimit -f), allows no file of this size",
    errno.EACCES: "check the permissions, and who owns the folder",
    errno.EPERM: "check the permissions, and who owns the folder",
    errno.EROFS: "the file system is mounted read-only",
    errno.ENAMETOOLONG: "file systems allow 255 bytes in the name of a folder, as values of partition columns make it",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class AlreadyExistsError(StorageError, FileExistsError):
    """An exclusive create found the name taken: another process was first."""


class CatalogError(SkepError):
    """The metastore refused a call. Fields: uri, call, table. The Thrift error is chained."""


class MetastoreUnreachableError(CatalogError):
    """No metastore answers at the address (refused, timed out, or dropped the connection)."""


class AuthenticationError(CatalogError):
    """The metastore and the caller could not prove who they are: TLS or Kerberos. Fields: uri."""


class MetastoreStartError(CatalogError):
    """The embedded metastore did not come up. Fields: log, port, pid."""


class NoSuchTableError(CatalogError, KeyError):
    """The metastore has no table (or database) of this name."""

    __str__ = Exception.__str__  # KeyError would print the repr of the message


class EntryExistsError(CatalogError):
    """A database, table or partition of this name is in the metastore already."""


class EntryChangedError(CatalogError):
    """Another client changed the metastore's entry since it was read: read again, plan again."""


class NoSuchLockError(CatalogError):
    """The metastore knows no lock of this id: released, expired or broken. Fields: lock_id."""


class EngineError(SkepError):
    """Spark failed at a query that may be as it should: out of memory, executors lost, its process ended."""


class SyncError(SkepError):
    """A step after a commit (sync, callback, service) failed. The table remains committed."""


class EnvironmentMissingError(SkepError):
    """Java, pyspark or an optional package is missing, or its version does not fit."""


@contextmanager
def needs(extra: str, text: str, **fields: object) -> Iterator[None]:
    """EnvironmentMissingError for a package that an import in the block does not find; `%s` in the text is its name.

    The hint is what installs the packages of an extra.
    """
    try:
        yield
    except ImportError as error:
        from skep_format.distribution import install_command

        message = text.replace("%s", error.name or "")
        raise EnvironmentMissingError(message, hint=install_command(extra), **fields) from error
