"""A training on a disk that is really full, again and again with a little more room, until it is done."""

import ctypes
import os
import shutil

from multimix.lab.training.run import train

NEW_MOUNTS, NEW_USERS, RECURSIVE, PRIVATE = 0x20000, 0x10000000, 0x4000, 0x40000
PAGE = 4096
SIZE = 64 * PAGE


def trains(runs, folder, note):
    """Note the error of every attempt; copy the files to ``<folder>.copy`` at the end, since the disk goes with the process."""
    folder.mkdir(parents=True)
    _mount(folder)
    for free in range(2, 60):
        ballast = folder / "ballast"
        ballast.unlink(missing_ok=True)
        used = os.statvfs(folder)
        room = used.f_bavail * used.f_frsize
        try:
            ballast.write_bytes(b"x" * max(0, room - free * PAGE))
            train(runs, data=".", out=folder, note=lambda sentence: None)
            break
        except OSError as error:
            note(f"{type(error).__name__}: {error}")
    ballast.unlink(missing_ok=True)
    shutil.copytree(folder, folder.with_name(folder.name + ".copy"))


def _mount(folder):
    """A small disk in memory that only this process sees; a PermissionError where the system does not allow it."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    _call(libc.unshare, NEW_MOUNTS | (NEW_USERS if user else 0))
    if user:
        for name, words in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(words)
    _call(libc.mount, b"none", b"/", None, RECURSIVE | PRIVATE, None)
    _call(libc.mount, b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE}".encode())


def _call(function, *arguments):
    if function(*arguments) != 0:
        raise PermissionError(f"this system mounts no disk for a test: {os.strerror(ctypes.get_errno())}")
