"""Who may use the SQL server: users of a file, or of a function of the caller's; and passwords as they are kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skep_format.errors import InputError

_LINE: Final = re.compile(r"(?P<name>[^:\s]+):(?P<right>read|write):(?P<kept>\S+)")
_SCRYPT: Final = {"n": 1 << 14, "r": 8, "p": 1}
_REMEMBERED_SECONDS: Final = 300.0
_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class User:
    """Someone who is known. Without `may_write` only statements that change nothing are carried out."""

    name: str
    may_write: bool = False


Authenticate = Callable[[str, str], User | None]
"""Name and password (or token) → the user, None for a wrong pair. The name is empty for a bearer token."""


def kept_password(password: str) -> str:
    """What a file of users keeps of a password: a salted scrypt hash."""
    salt = secrets.token_bytes(16)
    return f"scrypt${salt.hex()}${hashlib.scrypt(password.encode(), salt=salt, **_SCRYPT).hex()}"


def kept_token(token: str) -> str:
    """The same of a long random token: its digest, which is looked up at no cost."""
    return f"sha256${digest(token)}"


def digest(text: str) -> str:
    """By which tokens are compared and looked up: the time taken shows nothing of them."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Users:
    """Checks names with passwords, and tokens. A pair that was right is remembered for some minutes, as a digest."""

    def __init__(self, authenticate: Authenticate) -> None:
        self._authenticate = authenticate
        self._secret = secrets.token_bytes(32)
        self._right: dict[bytes, tuple[float, User]] = {}
        self._guard = threading.Lock()
        self._hashing = threading.Semaphore(2)  # scrypt takes 16 MiB and a tenth of a second each time

    @classmethod
    def from_file(cls, path: str | Path) -> Users:
        """Lines of `name:read:…` or `name:write:…`, as `skep sql-user` prints them; `#` begins a comment."""
        return cls(_FileUsers(path))

    def check(self, name: str, password: str) -> User | None:
        """The user, None for a wrong pair."""
        pair = f"{len(name)}:{name}{password}".encode("utf-8", "surrogateescape")
        digest = hmac.digest(self._secret, pair, "sha256")
        now = time.monotonic()
        with self._guard:
            until, user = self._right.get(digest, (0.0, None))
        if user is not None and now < until:
            return user
        with self._hashing:
            user = self._authenticate(name, password)
        if user is not None:
            with self._guard:
                if len(self._right) >= _REMEMBERED:
                    self._right.clear()
                self._right[digest] = (now + _REMEMBERED_SECONDS, user)
        return user

    def check_token(self, token: str) -> User | None:
        """The user of a bearer token."""
        return self.check("", token) if token else None


class _FileUsers:
    """The users of a file, read once."""

    def __init__(self, path: str | Path) -> None:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the file of users {path} can't be read: {error}", option="--users-file") from error
        entries = list(_entries(lines, str(path)))
        if not entries:
            raise InputError(f"the file of users {path} names no user", option="--users-file")
        self._entries = {user.name: (user, kept) for user, kept in entries}
        self._tokens = {kept: user for user, kept in entries if kept.startswith("sha256$")}
        self._nobody = kept_password(secrets.token_hex(16))

    def __call__(self, name: str, password: str) -> User | None:
        if not name:
            return self._tokens.get(kept_token(password))  # by a digest: the time taken shows nothing of the token
        user, kept = self._entries.get(name, (None, self._nobody))  # an unknown name takes as long as a wrong password
        return user if _fits(password, kept) else None


def _entries(lines: Iterable[str], path: str) -> Iterable[tuple[User, str]]:
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = _LINE.fullmatch(text)
        if found is None or not _KEPT.fullmatch(found["kept"]):
            raise InputError(
                f"{path}, line {number}: not a user",
                hint="skep sql-user NAME prints a line",
                expected="name:read|write:scrypt$… or sha256$…",
            )
        if found["name"] in seen:
            raise InputError(f"{path}, line {number}: user {found['name']} occurs twice", found=found["name"])
        seen.add(found["name"])
        yield User(found["name"], found["right"] == "write"), found["kept"]


_KEPT: Final = re.compile(r"scrypt\$[0-9a-f]{32}\$[0-9a-f]{128}|sha256\$[0-9a-f]{64}")


def _fits(password: str, kept: str) -> bool:
    kind, _, rest = kept.partition("$")
    if kind == "sha256":
        return hmac.compare_digest(digest(password), rest)
    salt, _, wanted = rest.partition("$")
    given = hashlib.scrypt(password.encode("utf-8", "surrogateescape"), salt=bytes.fromhex(salt), **_SCRYPT)
    return hmac.compare_digest(given.hex(), wanted)
