"""Ends a server when its owner dies, where the kernel cannot do it.

Used on systems without PR_SET_PDEATHSIG (macOS), and for servers started from a thread, because the kernel sends that
signal when the *thread* ends. A shell reads from a pipe whose write end only the owner has. The watchdog does not
survive its own kill -9, and does not act while a fork of the owner has the pipe open.
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
        # A process group of its own: Ctrl-C for the owner must not end the watchdog first.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -s "$1" "$2"', "tideq-watchdog", name, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )

    def close(self) -> None:
        """Kills the shell before the pipe is closed, which the shell would take for the owner's death."""
        self._shell.kill()
        self._shell.communicate()
