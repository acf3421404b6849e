"""Files that are encrypted with a passphrase, and say so if anything in them was changed.

scrypt (RFC 7914) makes the key from the passphrase and a salt that no other file has. The content
is cut into chunks, each sealed by AES-256-GCM with the head of the file; its nonce is its number,
and whether it is the last one, as in age (https://age-encryption.org/v1, "Payload"). So no chunk
can be changed, moved, left out or put behind the last one, and nothing is read before it is proven.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from getpass import getpass
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from muster.core.errors import MusterError

MAGIC = b"muster sealed 1\n"
LEAST_PASSPHRASE = 12
"""Characters that a passphrase has at least."""
_MAX_PASSPHRASE_BYTES = 4096
_CHUNK_BYTES = 64 * 1024
_TAG_BYTES = 16
_MAX_HEAD_BYTES = 1024


class BadSeal(MusterError):
    """The passphrase is wrong, or the file is damaged or was changed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of making a key; the memory is 128 · n · r bytes: 128 MiB."""

    n: int = 2**17
    r: int = 8
    p: int = 1

    @property
    def is_bearable(self) -> bool:
        """Whether a file that names it can be read without harm to this machine."""
        is_power = self.n > 1 and self.n & (self.n - 1) == 0
        return is_power and self.r > 0 and 0 < self.p <= 4 and self.n * self.r <= 2**23


@dataclass(frozen=True, slots=True)
class _Head:
    """The text before the chunks; ``salt`` in hexadecimal."""

    salt: str
    cost: Cost = field(default_factory=Cost)

    @property
    def text(self) -> bytes:
        return MAGIC + json.dumps({"salt": self.salt, **asdict(self.cost)}).encode() + b"\n"

    def key(self, passphrase: str) -> AESGCM:
        salt, cost = bytes.fromhex(self.salt), self.cost
        key = Scrypt(salt, 32, cost.n, cost.r, cost.p).derive(passphrase.encode())
        return AESGCM(key)


class SealingFile:
    """A file to be written, which is sealed by ``finish``."""

    def __init__(self, file: BinaryIO, passphrase: str, cost: Cost) -> None:
        head = _Head(os.urandom(16).hex(), cost)
        self._file, self._head, self._key = file, head.text, head.key(passphrase)
        self._number = 0
        self._left = bytearray()
        file.write(self._head)

    def write(self, data: bytes) -> int:
        self._left += data
        while len(self._left) > _CHUNK_BYTES:
            self._seal(bytes(self._left[:_CHUNK_BYTES]), is_last=False)
            del self._left[:_CHUNK_BYTES]
        return len(data)

    def finish(self) -> None:
        self._seal(bytes(self._left), is_last=True)
        self._left.clear()

    def _seal(self, chunk: bytes, *, is_last: bool) -> None:
        nonce = _nonce(self._number, is_last=is_last)
        self._file.write(self._key.encrypt(nonce, chunk, self._head))
        self._number += 1


class SealedFile:
    """A file to be read that was sealed.

    Raises:
        BadSeal: it is damaged or was changed, or the passphrase is another.
    """

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        self._file = file
        self._head, key = _read_head(file)
        self._key = key.key(passphrase)
        self._number = 0
        self._ready = bytearray()
        self._next = file.read(_CHUNK_BYTES + _TAG_BYTES)
        self._is_over = False

    def read(self, size: int = -1) -> bytes:
        while not self._is_over and (size < 0 or len(self._ready) < size):
            self._open_chunk()
        taken = bytes(self._ready if size < 0 else self._ready[:size])
        del self._ready[: len(taken)]
        return taken

    def _open_chunk(self) -> None:
        chunk, self._next = self._next, self._file.read(_CHUNK_BYTES + _TAG_BYTES)
        is_last = not self._next
        try:
            opened = self._key.decrypt(_nonce(self._number, is_last=is_last), chunk, self._head)
        except InvalidTag:
            if self._number == 0:
                raise BadSeal("the passphrase is wrong, or the file is damaged") from None
            raise BadSeal("the file is damaged, cut off or was changed") from None
        self._ready += opened
        self._number += 1
        self._is_over = is_last


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def _read_head(file: BinaryIO) -> tuple[bytes, _Head]:
    """
    Raises:
        BadSeal: it is no head, or asks for too much.
    """
    text = file.read(len(MAGIC)) + file.readline(_MAX_HEAD_BYTES)
    try:
        said = json.loads(text.removeprefix(MAGIC))
        head = _Head(said["salt"], Cost(int(said["n"]), int(said["r"]), int(said["p"])))
        is_salt = len(bytes.fromhex(head.salt)) == 16
    except (ValueError, KeyError, TypeError):
        raise BadSeal("the file is damaged: its head cannot be read") from None
    if not is_salt or not head.cost.is_bearable:
        raise BadSeal("the file is damaged: its head asks for what no backup needs")
    return text, head


def is_sealed(file: Path) -> bool:
    """
    Raises:
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        return opened.read(len(MAGIC)) == MAGIC


@contextmanager
def sealing(file: BinaryIO, passphrase: str, cost: Cost | None = None) -> Iterator[SealingFile]:
    """A file that is sealed at the end of the block, if that ends well."""
    writer = SealingFile(file, passphrase, cost or Cost())
    yield writer
    writer.finish()


def passphrase_in(file: Path) -> str:
    """The passphrase in a file, "-" being standard input: its first line.

    Raises:
        MusterError: it cannot be read, or holds none.
    """
    try:
        if str(file) == "-":
            line = sys.stdin.buffer.readline(_MAX_PASSPHRASE_BYTES)
        else:
            with file.open("rb") as opened:
                line = opened.readline(_MAX_PASSPHRASE_BYTES)
        passphrase = line.decode().rstrip("\r\n")
    except OSError as error:
        raise MusterError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MusterError(f"{file} holds no passphrase: its first line is not text") from None
    if not passphrase:
        raise MusterError(f"{file} holds no passphrase: its first line is empty")
    return passphrase


def passphrase_typed(*, twice: bool) -> str:
    """The passphrase that a person types, unseen.

    Raises:
        MusterError: there is no terminal; or it was not typed the same way again.
    """
    if not sys.stdin.isatty():
        raise MusterError(
            "a passphrase is needed, and there is no terminal: name a file with --passphrase-file"
        )
    passphrase = getpass("Passphrase of the backup: ")
    if twice and getpass("Again: ") != passphrase:
        raise MusterError("the two passphrases differ: nothing was done")
    return passphrase


def require_strong(passphrase: str) -> None:
    """
    Raises:
        MusterError: the passphrase is too short to keep anything secret.
    """
    if len(passphrase) < LEAST_PASSPHRASE:
        raise MusterError(
            f"the passphrase has {len(passphrase)} characters: {LEAST_PASSPHRASE} or more are "
            f"needed, such as five words that do not belong together"
        )
