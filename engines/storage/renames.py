"""Exchange two names in one step, where the system can: `renameat2` of Linux.

Python has no call for it, so the C library's is used. Old kernels and some file systems (NFS, a
few of FUSE) do not have it; who asks learns that and goes another way.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

__all__ = ["exchange"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_ABSENT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
"""EPERM is what a container's filter of system calls says."""


def exchange(first: Path, second: Path) -> bool:
    """Let two names change places at once, whatever they are.

    Returns:
        False when the system or the file system cannot; then nothing happened.

    Raises:
        OSError: it can, and did not, such as a name that is not there.
    """
    code = system_exchange(first, second)
    if code == 0:
        return True
    if code in _ABSENT:
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))


def system_exchange(first: Path, second: Path) -> int:
    """Call the system; returns its error number, 0 when it is done."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return errno.ENOSYS
    place, name = ctypes.c_int, ctypes.c_char_p
    function.argtypes = [place, name, place, name, ctypes.c_uint]
    names = os.fsencode(first), os.fsencode(second)
    if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return 0
    return ctypes.get_errno()
