"""File descriptors of the probe, in a program that may close them: one that becomes a daemon closes all, by number."""

import contextlib
import errno
import os


class OwnDescriptor:
    """An open descriptor, used only while it is still the file that the probe opened.

    A program that has closed it may have opened a file of its own under the same number since. Such a number is
    forgotten: it is neither read, nor written, nor closed. Any thread may call the methods.

    Args:
        number: A descriptor that nothing else closes, of a socket or a pipe.
    """

    def __init__(self, number: int) -> None:
        self._number: int | None = number
        self._identity = _identity(number)

    def fileno(self) -> int | None:
        """Return its number; None if it is closed, or no longer the probe's."""
        number = self._number
        if number is not None and _identity(number) != self._identity:
            self._number = number = None
        return number

    def read(self, limit_bytes: int) -> bytes:
        """Read as `os.read` does.

        Raises:
            OSError: It is closed or no longer the probe's, or it cannot be read.
        """
        return os.read(self._checked(), limit_bytes)

    def write(self, data: bytes) -> None:
        """Write one packet, or some bytes.

        Raises:
            OSError: Likewise.
        """
        os.write(self._checked(), data)

    def close(self) -> None:
        """Close it, unless it is closed or no longer the probe's."""
        number, self._number = self.fileno(), None
        if number is not None:
            with contextlib.suppress(OSError):
                os.close(number)

    def _checked(self) -> int:
        number = self.fileno()
        if number is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return number


def _identity(number: int) -> tuple[int, int] | None:
    """Return device and inode, which distinguish all open sockets and pipes; None if the descriptor is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino
