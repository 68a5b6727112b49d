# SPDX-License-Identifier: BSD-3-Clause
"""Errors as exceptions, with the sentence of the library: what failed, why, and what to do.

Invalid arguments raise ValueError, missing memory MemoryError, and what a device, a driver or this
build does not support NotImplementedError. All other failures are an Error.
"""

import builtins
import errno
from typing import Dict, Type

from . import _lib


class Error(OSError):
    """A failure of the library: `errno` has the number, the text says what to do.

    After an Error of an operation its communicator can only be closed.
    """

    def __str__(self) -> str:
        return str(self.strerror)


class MismatchError(Error):
    """The ranks started different operations, have other settings, or another version (EPROTO)."""


class TimeoutError(Error, builtins.TimeoutError):
    """Other ranks did not come, or an operation made no progress for its time (ETIMEDOUT)."""


class PeerLostError(Error, ConnectionError):
    """A rank has exited or cannot be reached (ECONNRESET)."""


class AbortedError(Error):
    """A rank has aborted the communicator (ECANCELED)."""


_CLASSES: Dict[int, Type[Error]] = {
    errno.EPROTO: MismatchError,
    errno.ETIMEDOUT: TimeoutError,
    errno.ECONNRESET: PeerLostError,
    errno.ECANCELED: AbortedError,
}


def from_code(code: int, text: str) -> Exception:
    """Returns the exception of a result code (a negative errno) with this text."""
    number = abs(code)
    if number == errno.EINVAL:
        return ValueError(text)
    if number == errno.ENOMEM:
        return MemoryError(text)
    if number == errno.ENOTSUP:
        return NotImplementedError(text)
    return _CLASSES.get(number, Error)(number, text)


def last(code: int) -> Exception:
    """Returns the exception of the calling thread's latest failed call, which returned `code`."""
    text = _lib.last_error() or _lib.strerror(code)
    return from_code(code, text.decode(errors="replace"))
