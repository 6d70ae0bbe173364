"""From a path as users write it to the storage that serves it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from skep_format.errors import InputError, UnsupportedError
from skep_format.storage.base import Storage
from skep_format.storage.hdfs import SCHEMES as HDFS_SCHEMES
from skep_format.storage.hdfs import HdfsStorage
from skep_format.storage.local import LocalStorage
from skep_format.storage.objects import SCHEMES, ObjectStorage


def open_storage(path: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
    """The storage whose root is `path`. `options` are credentials and endpoints, by Hadoop's or skep's names.

    Raises UnsupportedError for a scheme that no storage serves, InputError for what is no path.
    """
    text = os.fspath(path)
    if "\0" in text:
        raise InputError(f"{text!r} is no path: it contains a null character", found=text)
    scheme, separator, _ = text.partition(":/")
    if not separator or scheme == "file":
        return LocalStorage(text)
    if scheme in SCHEMES:
        return ObjectStorage(text, options)
    if scheme in HDFS_SCHEMES:
        return HdfsStorage(text, options)
    raise UnsupportedError(f"no storage serves {text}: scheme {scheme!r} is not supported yet", scheme=scheme)
