# SPDX-License-Identifier: BSL-1.0
"""Files that are there whole, or not at all, whatever ends the process or fills the disk: every file that the package leaves to its user."""
import errno
import os
import secrets
import stat

from .errors import PlanError

_DESCRIPTORS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/")  # such a path stands for a file that is already open


def write_whole(path, text, what="the file"):
    """Replaces the file `path` by `text`; raises `PlanError` with the system's reason, and leaves the old file as it was.

    Links are followed, and the mode of the old file is kept. Pipes and devices are written directly.
    """
    path = os.fspath(path)
    try:
        _replace(path, text)
    except OSError as error:
        raise PlanError(f"{path}: {what} cannot be written: {error.strerror}") from error


def _replace(path, text):
    try:
        old = os.stat(path)
    except FileNotFoundError:
        old = None
    if old is not None and (not stat.S_ISREG(old.st_mode) or os.path.abspath(path).startswith(_DESCRIPTORS)):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    target = os.path.realpath(path)
    if old is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    part = os.path.join(os.path.dirname(target), f".remat-{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if old is not None:
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise
