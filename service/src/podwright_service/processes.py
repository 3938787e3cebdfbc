"""Several processes for one component: gunicorn keeps them, and each runs the server that a single one runs.

gunicorn has a worker of its own for ASGI, of about the same speed. Ours puts `DrainingServer` into the worker, so that
one and several processes are the same on the wire: requests are parsed, and slow clients sent away, by the same code,
and the service ends in the same order (there, it is deaf as soon as it is told).

The component is loaded once, before the fork: an error stops the start in words, a worker that is replaced needs
nothing from outside, and the workers share its memory.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import uvicorn
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.sock import BaseSocket
from gunicorn.workers.base import Worker
from prometheus_client import multiprocess

from podwright.errors import ConfigurationError
from podwright_service.draining import ENDING, TO_ANSWER, DrainingServer, Told, log
from podwright_service.settings import Settings

_HANGS = 30
"""Seconds without a heartbeat after which a worker counts as hung, is killed, and says where it hung."""

_SIGNALLED = 128
"""From here on an exit code tells the signal that ended a process, as a shell has it."""

_HELD = (*ENDING, signal.SIGQUIT)
"""The signals that wait until a worker, just forked, has set its own handlers."""

_TO_FLUSH = 5
"""Seconds for what the application writes out at its end."""


def serve(
    config: uvicorn.Config, settings: Settings, listening: list[socket.socket], started: Callable[[], None]
) -> None:
    """Serve with `settings.workers` processes until a signal ends it, then return.

    Args:
        config: What each worker runs.
        settings: How many, and how long the end may take.
        listening: The sockets; they are closed in the end.
        started: Called when connections are taken.

    Raises:
        ConfigurationError: The application cannot start, or this is not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone can listen to signals
        raise ConfigurationError(
            "Several workers can only be served from the main thread.", suggestion="Set PODWRIGHT_WORKERS=1."
        )
    ours = {threading.current_thread().name, "OtelBatchSpanRecordProcessor"}  # each worker starts its own
    if names := ", ".join(sorted({one.name for one in threading.enumerate()} - ours)):
        log.warning("The component started threads, which its workers will lack (%s); start them on first use.", names)
    master = os.getpid()
    try:
        _Master(_Application(config, settings, listening, started)).run()
    except SystemExit as end:
        if os.getpid() != master or cast("int", end.code or 0) > _SIGNALLED:  # a worker ends here too
            raise
        if end.code:
            raise ConfigurationError("The service cannot start; the lines above say why.") from end


class _Master(Arbiter):
    """Ends on the same signals as a single process; nothing is read again, and no second master started."""

    def __init__(self, app: _Application) -> None:
        self._told = Told()
        self._forking = False
        self._at_once = 0
        super().__init__(app)

    def signal(self, sig: int, frame: FrameType | None) -> None:
        # gunicorn would take SIGQUIT for an orderly end, and say so with exit code 0
        if sig == signal.SIGQUIT or (sig in ENDING and self._told.again()):
            self._at_once = sig
            if not self._forking:  # what is raised in a hook of the fork is only printed, and that worker not yet known
                self._end_at_once()
            return
        if sig in ENDING:
            sig = signal.SIGTERM
        super().signal(sig, frame)

    def _end_at_once(self) -> None:
        self.kill_workers(signal.SIGKILL)
        sys.exit(_SIGNALLED + self._at_once)

    def handle_ttin(self) -> None:
        # a worker leaves. Signals may come late, in another order, or one for two, so they are not what is counted
        self.count_workers()
        self.manage_workers()

    def count_workers(self) -> None:
        """Have as many workers as were asked for beside those that leave."""
        workers = cast("list[_Worker]", list(self.WORKERS.values()))
        self.num_workers = self.cfg.workers + sum(one.leaves() for one in workers)

    def handle_usr2(self) -> None:
        log.info("SIGUSR2 has no meaning here.")

    def spawn_worker(self) -> Any:
        self._forking = True
        # a worker that has not yet set its own handlers would take a signal for the master's; it has this thread alone,
        # while here another one may be handed the signal
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        try:
            pid = super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
            self._forking = False
        if self._at_once:
            self._end_at_once()
        return pid


class _Worker(Worker):
    """Runs the server, and says every second that its loop turns."""

    def init_signals(self) -> None:
        for one in self.SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        # what a terminal tells the whole group is for the master to pass on; and a handler, other than SIG_IGN,
        # is not inherited by the programs that tools start
        for one in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(one, lambda number, frame: None)
        faulthandler.enable()  # SIGABRT, which ends a worker that hangs, shows where

    def leaves(self) -> bool:
        """Whether it is to be replaced; asked by the master, which shares the file of its heartbeats."""
        return os.fstat(self.tmp.fileno()).st_size > 0

    def load_wsgi(self) -> None:
        """The application is loaded already."""

    def run(self) -> None:
        application = cast("_Application", self.app)
        most = 0 if self.max_requests == sys.maxsize else self.max_requests
        server = _Beating(application.config, application.settings, most, leaving=self._ask_for_another)
        server.beat = self._beat
        signal.signal(signal.SIGTERM, lambda number, frame: server.drain())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
        try:
            server.run([cast("BaseSocket", one).sock for one in self.sockets])
        except ConfigurationError:  # the lines above said why
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    def _ask_for_another(self) -> None:
        os.write(self.tmp.fileno(), b"leaves")
        self.notify()  # the heartbeat is the file's time
        os.kill(self.ppid, signal.SIGTTIN)

    def _beat(self) -> bool:
        self.notify()
        return self.ppid == os.getppid()


class _Beating(DrainingServer):
    """Calls `beat` each second for as long as its loop turns, and drains when that says no."""

    beat: Callable[[], bool]

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        beating = asyncio.ensure_future(self._keep_beating())
        try:
            await super().serve(sockets)
        finally:
            beating.cancel()

    async def _keep_beating(self) -> None:
        while True:
            if not self.beat():  # the master is gone, and nobody would end or replace this process
                self.drain()
            await asyncio.sleep(1)


class _Application(BaseApplication):
    """gunicorn's settings; neither its command line, nor its file, nor its variable is read."""

    def __init__(
        self, config: uvicorn.Config, settings: Settings, listening: list[socket.socket], started: Callable[[], None]
    ) -> None:
        self.config, self.settings, self._listening, self._started = config, settings, listening, started
        super().__init__()

    def load_config(self) -> None:
        settings = self.settings
        ending = settings.drain_delay + settings.shutdown_timeout + TO_ANSWER + _TO_FLUSH
        for name, value in {
            "bind": [f"fd://{one.detach()}" for one in self._listening],
            "workers": settings.workers,
            "worker_class": _Worker,
            "logger_class": _Log,
            "timeout": _HANGS,
            "graceful_timeout": int(ending + 1),
            "max_requests": settings.worker_max_requests,
            "max_requests_jitter": settings.worker_max_requests // 10,  # not all at once
            "worker_tmp_dir": "/dev/shm" if os.access("/dev/shm", os.W_OK) else None,  # noqa: S108
            "control_socket_disable": True,
            "when_ready": self._ready,
            "child_exit": _bury,
        }.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return self.config.app

    def _ready(self, master: Arbiter) -> None:
        # what is there now stays: a collector that looked through it would unshare its memory
        gc.collect()
        gc.freeze()
        self._started()


class _Log(Logger):
    """gunicorn's lines among the server's own."""

    def setup(self, cfg: Any) -> None:
        self.cfg, self.error_log = cfg, log
        self.access_log = logging.getLogger("uvicorn.access")


def _bury(master: Arbiter, worker: _Worker) -> None:
    multiprocess.mark_process_dead(worker.pid)  # pyright: ignore[reportUnknownMemberType] - has no types
    cast("_Master", master).count_workers()
