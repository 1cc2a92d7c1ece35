"""The system calls that change a state directory, one method each, and the meaning of their errors.

The store makes every change through a Disk, so that a test can stop it between any two calls or let
any call fail. Other parts write whole files by `put`, and read them by `content_of`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fednode.errors import StateError

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
ASIDE: Final = ".new"
"""How the name of a file ends that is written aside, and that a crash may leave."""
WAIT_S: Final = 10.0
RETRY_S: Final = 0.01
"""Pause between two attempts at a lock that another process holds, for WAIT_S at most."""
_PID_BYTES_MAX: Final = 20
PROBE_BYTES: Final = 1 << 20
_DENIED: Final = "permission denied"
_DESCRIPTORS: Final = "too many files are open: raise the limit (ulimit -n, LimitNOFILE)"
_IN_THE_WAY: Final = "a file is where a folder is to be"
_SYSTEM: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "it is read-only",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EIO: "the disk failed to read or write",
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ELOOP: "it is a link, and fednode follows no link in a folder that it writes",
}
EARLIER: Final = ("journal.db", "identity/lease", "admission")
"""Files of a state directory by versions before checkpoints and certificates."""


class Disk:
    """The system calls themselves. Everything that they create is readable by the owner only."""

    def make_folder(self, path: Path) -> None:
        """Make a folder, and those of its parents that do not exist, for the owner alone."""
        for folder in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)

    def create(self, path: Path, kept: int = 0, mode: int = FILE_MODE) -> int:
        """Open a file for writing behind its first `kept` bytes, and drop the rest.

        The file is made if there is none. The file behind a link is never opened. Return the
        descriptor.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, mode)
        try:
            os.ftruncate(descriptor, kept)
            os.lseek(descriptor, kept, os.SEEK_SET)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some of the data; return the number of bytes written."""
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        """Wait until written data, or changes in a folder, would survive a crash."""
        os.fsync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file; replace the file that has the new name."""
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)

    # Made of the above ----------------------------------------------------------------------------

    def replace(self, path: Path, data: bytes, mode: int = FILE_MODE) -> None:
        """Write a file aside, sync it, rename it and sync the folder: all of it or nothing.

        The file aside has a name of its own, because several machines may write at a time.
        """
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}{ASIDE}")
        try:
            self.append(aside, 0, data, mode)
            self.rename(aside, path)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(aside)
            raise
        self.sync_path(path.parent)

    def append(self, path: Path, kept: int, data: bytes, mode: int = FILE_MODE) -> None:
        """Write data behind the first `kept` bytes of a file, in place of the rest, and sync it."""
        descriptor = self.create(path, kept, mode)
        try:
            left = memoryview(data)
            while left:
                left = left[self.write(descriptor, left) :]
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def sync_path(self, path: Path) -> None:
        """Make what is written in a file, or the names in a folder, durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)


def because(fault: OSError) -> str:
    """Return the reason of an error in words for people."""
    return _SYSTEM.get(fault.errno or 0, fault.strerror or str(fault))


@contextlib.contextmanager
def explained(what: str, advice: str) -> Iterator[None]:
    """Turn an error of the system into a StateError: what is wrong, the reason, and advice."""
    try:
        yield
    except OSError as fault:
        raise StateError(f"{what}: {because(fault)}{advice}") from fault


def put(
    path: Path, content: str | bytes, another: str, for_all: bool = False, disk: Disk | None = None
) -> None:
    """Write a file. After a power loss it holds the old or the new content, no part of either.

    another: what to choose if this place does not work, for the error. for_all: the process's umask
    says who may read the file; without it only the owner may. Raise StateError if the file cannot
    be written.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if path.exists() and not path.is_file():  # such as /dev/null, which root would replace
        raise StateError(f"{path} is no file; choose another {another}.")
    advice = f"; free space there or choose another {another}."
    with explained(f"{path} cannot be written", advice):
        (disk or Disk()).replace(path, data, 0o666 if for_all else FILE_MODE)


def content_of(path: Path) -> bytes:
    """Return the bytes of a file.

    Raise StateError if the system does not give them. That says nothing about the content: with
    free descriptors, or once the disk answers, the same file may be sound.
    """
    with explained(f"{path} cannot be read", ". Try again when it can; it was not changed."):
        return path.read_bytes()


def text_of(path: Path) -> str:
    """Return the text of a small file, without spaces around it; raise StateError."""
    try:
        return content_of(path).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise StateError(
            f"{path} is not UTF-8 text: restore it from a backup, or delete it."
        ) from None


def content_if_any(path: Path) -> bytes | None:
    """Return the bytes of a file; None if there is no such file. Raise as `content_of`."""
    try:
        return content_of(path)
    except StateError as fault:
        if isinstance(fault.__cause__, FileNotFoundError):
            return None
        raise


def earlier_files(state: Path) -> list[str]:
    """Return the files of EARLIER in a state directory."""
    return [name for name in EARLIER if os.path.exists(state / name)]


def refuse_earlier(state: Path) -> None:
    """Raise StateError if an earlier version of fednode wrote a state directory."""
    if earlier := earlier_files(state):
        raise StateError(
            f"{state} is a state directory of an earlier version of fednode (it holds "
            f"{', '.join(earlier)}), which this version cannot read; nothing in it was changed. "
            "Rename this folder, then begin anew: in a mesh with keys the founder with `fednode "
            "init MESH`, and every other site with a new link and `fednode join LINK`."
        )


def writing_fault(folder: Path, disk: Disk | None = None) -> str:
    """Return why a folder, or the folder that it would be made in, cannot be written; "" if it can.

    Write, sync and remove a file of PROBE_BYTES, because full disks, quotas and read-only file
    systems show themselves in no other way.
    """
    disk = disk or Disk()
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    probe = place / f".fednode-probe-{os.getpid()}"
    try:
        disk.replace(probe, bytes(PROBE_BYTES))
    except OSError as fault:
        return because(fault)
    finally:
        with contextlib.suppress(OSError):
            disk.remove(probe)
    return ""


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a lock on a file: no other process or thread that uses `alone` on it runs meanwhile.

    Others hold the lock for moments only, so wait for them; raise StateError after WAIT_S.
    """
    with explained(f"{path} cannot be opened to lock it", "."):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
    try:
        end = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as fault:
                if time.monotonic() > end:
                    text = f"{path} has been locked by another process for {WAIT_S:g} s"
                    raise StateError(f"{text}: stop that process.") from fault
                time.sleep(RETRY_S)
        yield
    finally:
        os.close(descriptor)


def keep_private(folder: Path) -> None:
    """Take every right of other users on a state directory and its files away.

    Raise StateError if the directory belongs to another user, or if other users may write there: a
    file in it may be theirs. Exceptions: root may use a directory of anyone, and anyone may use one
    of root's that only its owner and group may write, such as a volume of Kubernetes.
    """
    status, me = folder.stat(), os.geteuid()
    if status.st_uid != me and me and (status.st_uid or status.st_mode & stat.S_IWOTH):
        raise StateError(
            f"The state directory {folder} belongs to user {status.st_uid}, and this is user {me}: "
            "give this node a directory of its own, or start it as that user."
        )
    if status.st_mode & stat.S_IWOTH and any(folder.iterdir()):
        raise StateError(
            f"Every user may write in the state directory {folder} (mode "
            f"{stat.S_IMODE(status.st_mode):04o}), so its files may come from another user: look "
            f"through them, then run `chmod -R go= {folder}`."
        )
    for path in (folder, *folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # a file that another process just renamed
            here = path.lstat()
            if here.st_uid == me and here.st_mode & 0o077 and not stat.S_ISLNK(here.st_mode):
                path.chmod(stat.S_IMODE(here.st_mode) & 0o700)


def lock(folder: Path) -> int:
    """Take the lock of a folder for this process; return the descriptor that holds it.

    Raise StateError if another process holds the lock, or if the folder is open to other users and
    cannot be closed. The system releases the lock when the process ends, in whatever way.
    """
    keep_private(folder)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except BlockingIOError as fault:
        holder = os.pread(descriptor, _PID_BYTES_MAX, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StateError(
            f"The state directory {folder} is in use by process {holder or 'unknown'}: stop that "
            "process, or give this node another directory."
        ) from fault
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
