"""Ends a server when its owner dies, where the kernel cannot be asked to.

For systems without PR_SET_PDEATHSIG (macOS), and for servers started from a thread (the kernel's
signal would come when that *thread* ends). A shell waits at the end of a pipe whose other end only
the owner holds. Does not promise to survive its own kill -9, nor to fire while a fork of the owner
still holds the pipe.
"""

import signal
import subprocess
import sys
import threading


def kernel_can_watch() -> bool:
    return sys.platform == "linux" and threading.current_thread() is threading.main_thread()


class Watchdog:
    def __init__(self, pid: int, death_signal: signal.Signals) -> None:
        name = death_signal.name.removeprefix("SIG")
        # Its own process group: a Ctrl-C meant for the owner must not take the watchdog first.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -s "$1" "$2"', "tideq-watchdog", name, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def close(self) -> None:
        """Killed before the pipe closes, or it would take the closing for the owner's death."""
        self._shell.kill()
        self._shell.communicate()
