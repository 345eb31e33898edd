"""Executes another program, which the kernel will end when the parent ends.

Run as a script, not imported: `launch.py PARENT_PID SIGNAL|0 UID:GID|- PROGRAM ARGUMENT…`. A script instead of a
preexec_fn, because Python code between fork and exec is unsafe in a process with threads. It costs 12 ms.

Where prctl is missing, SIGNAL is 0 and `watchdog.py` ends the program.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(parent_pid: str, death_signal: str, account: str, *command: str) -> None:
    if account != "-":
        become(*map(int, account.split(":")))
    # After the change of user, which clears the setting.
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
    # If the parent died before prctl, the signal will never arrive.
    if os.getppid() != parent_pid:
        sys.exit("the process that started this has ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
