"""Becomes another program, after arranging that it ends when its parent does.

Run as a script, not imported: `launch.py PARENT_PID SIGNAL|0 UID:GID|- PROGRAM ARGUMENT…`.
A script rather than a preexec_fn, because running Python between fork and exec is unsafe (and
from 3.12 warned about) in a process with threads. It costs 12 ms.

Does not promise anything where prctl is missing: then SIGNAL is 0 and `watchdog.py` does it.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(parent_pid: str, death_signal: str, account: str, *command: str) -> None:
    if account != "-":
        become(*map(int, account.split(":")))
    # After the change of user, which would clear the setting.
    if death_signal != "0":
        end_with(int(parent_pid), int(death_signal))
    os.execv(command[0], command)  # noqa: S606 - no shell is the point


def become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def end_with(parent_pid: int, death_signal: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal) != 0:
        sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    # It may have died before prctl; then no signal will ever come.
    if os.getppid() != parent_pid:
        sys.exit("the process that started this has ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
