"""What the first process of a container owes the kernel: to pass signals on, and to bury processes left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading

_FROM_KERNEL = 128
"""`si_code` of a signal that the kernel sent, such as a terminal's Ctrl-C (SI_KERNEL in sigaction(2))."""


def become_init() -> None:
    """As the first process, go on in a child; the process itself stays as its init, and ends with its exit code.

    A process that a tool leaves behind becomes a child of the first one, which the kernel counts on to wait for it.
    The service itself cannot: waiting for any child takes exit codes from those who wait for theirs. Call it before
    threads are started; where some run already, it does nothing.
    """
    if os.getpid() != 1 or threading.active_count() > 1:
        return
    heard = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, *_FAULTS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)  # from before the fork, so that none is lost
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    sys.stdout.flush()
    while True:
        told = signal.sigwaitinfo(heard)
        if told.si_signo == signal.SIGCHLD:
            _bury(child)
        elif told.si_code < _FROM_KERNEL:  # a terminal has told the child too
            os.kill(child, told.si_signo)


def _bury(child: int) -> None:
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)  # nothing of this process is worth an orderly end


_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
