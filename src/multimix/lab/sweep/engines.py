"""Where the runs of a sweep are computed: processes of this machine, a Ray cluster, or jobs of Slurm.

All engines start calls in processes of their own, say when and how one has ended, and ask it to stop. Rows, logs and checkpoints
go through the folder of results, which all machines must see; retries are the sweep's own.
"""

import faulthandler
import io
import logging
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from ...core.checks import nearest
from ..storage import make_folder, no_follow, processor

EngineName = Literal["local", "ray", "slurm"]
GROUPS = hasattr(os, "setpgrp")  # not on Windows


class End(NamedTuple):
    """How a call ended: ``done`` with its result, ``failed`` or ``stopped`` with a sentence."""

    how: Literal["done", "failed", "stopped"]
    value: Any = None


STOPPED = End("stopped", "it was told to stop")


class Engine(Protocol):
    """Starts calls: on what ``machine``, how many ``at_once`` (None: the engine knows), each with so many ``threads``."""

    machine: str
    at_once: int | None
    threads: int | None

    def start(self, work: Callable[..., Any], arguments: tuple[Any, ...], log: Path) -> Any:
        """A job that calls ``work(*arguments)``; both must be picklable. What it prints is added to ``log``."""

    def has_ended(self, job: Any) -> bool:
        """Whether it is over."""

    def stop(self, job: Any) -> None:
        """Ask it to stop: a training ends its update and writes a checkpoint."""

    def end(self, job: Any) -> End:
        """How it ended; waits for it."""

    def close(self) -> None:
        """Give back what the engine holds."""


# What each engine takes, as the command line calls it.
OPTIONS = {
    "local": ("jobs",),
    "ray": ("jobs", "address", "cpus", "gpus"),
    "slurm": ("jobs", "partition", "hours", "memory", "cpus", "gpus"),
}
LEAST = {"jobs": 1, "cpus": 1, "gpus": 0, "hours": 0, "memory": 0}


def make_engine(name: EngineName, out: Path, **options: Any) -> Engine:
    """The engine called ``name``. An option that is None is as if it were not given; those of another engine are refused."""
    given = {option: value for option, value in options.items() if value is not None}
    for option, value in given.items():
        if option not in OPTIONS[name]:
            raise ValueError(f"{option} is not an option of the engine {name}{nearest(option, OPTIONS[name])}")
        if option in LEAST and value < LEAST[option]:
            raise ValueError(f"{option} must be at least {LEAST[option]}, got {value}")
    if name == "local":
        return Local(**given)
    return Ray(**given) if name == "ray" else Slurm(out, **given)


class InProcess:
    """This process, one call after the other: for runs that take less than a process takes to start."""

    at_once: int | None = 1
    threads: int | None = None
    machine = "this process"

    def start(self, work: Callable[..., Any], arguments: tuple[Any, ...], log: Path) -> End:
        make_folder(log.parent)
        with open(log, "a", encoding="utf-8", opener=no_follow) as file, redirect_stdout(file), redirect_stderr(file):
            try:
                return End("done", work(*arguments))
            except Exception as error:
                traceback.print_exc()
                return End("failed", f"{type(error).__name__}: {_one_line(error)}")

    def has_ended(self, job: End) -> bool:
        return True

    def stop(self, job: End) -> None: ...

    def end(self, job: End) -> End:
        return job

    def close(self) -> None: ...


class LocalJob(NamedTuple):
    """A process, and the pipe through which its end comes."""

    process: SpawnProcess
    receives: Connection


class Local:
    """A new process of this machine for every call. Ctrl-C reaches only the parent; a process whose parent is gone stops.

    Neither concurrent.futures nor submitit's local executor can do this: a process killed in the pool of the one takes the
    others along, and the other kills a training one second after it was asked to stop.
    """

    def __init__(self, jobs: int = 1) -> None:
        self.machine = f"{processor()}, {os.cpu_count()} cores"
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.at_once: int | None = jobs
        self.threads: int | None = None if jobs == 1 else max(1, cores // jobs)  # several would take the cores from each other

    def start(self, work: Callable[..., Any], arguments: tuple[Any, ...], log: Path) -> LocalJob:
        context = get_context("spawn")
        receives, sends = context.Pipe(duplex=False)
        process = context.Process(target=_process_main, args=(_packed(work, arguments, log), sends, log))
        if GROUPS:  # the process inherits the mask: a second signal would make a training stop without a checkpoint
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            if GROUPS:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        sends.close()
        return LocalJob(process, receives)

    def has_ended(self, job: LocalJob) -> bool:
        return not job.process.is_alive()

    def stop(self, job: LocalJob) -> None:
        job.process.terminate()

    def end(self, job: LocalJob) -> End:
        job.process.join()
        with suppress(EOFError, OSError), job.receives:
            # Only what is there: a worker of its loader that outlives it holds the other end for a while.
            if job.receives.poll():
                end: End = job.receives.recv()
                return end
        return End("failed", _exit_sentence(job.process.exitcode))

    def close(self) -> None: ...


def _process_main(content: bytes, sends: Connection, log: Path) -> None:
    if GROUPS:
        os.setpgrp()  # a terminal that is closed ends the parent alone, which the thread notices
    threading.Thread(target=_follow_parent, daemon=True).start()
    sends.send(_execute(content, log))
    sends.close()


def _follow_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _exit_sentence(code: int | None) -> str:
    if code is None or code >= 0:
        return f"its process exited with code {code} before its end"
    known = {signal.value: signal.name for signal in signal.Signals}
    memory = ", as the system does when memory runs out" if code == -signal.SIGKILL else ""
    return f"its process was ended by {known.get(-code, f'signal {-code}')}{memory}"


class Ray:
    """A task of a Ray cluster for every call, in a process that ends with it; without an address Ray starts on this machine."""

    def __init__(self, address: str | None = None, *, jobs: int | None = None, cpus: int = 1, gpus: int = 0) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise ValueError("the engine ray needs the extra [ray]: pip install 'multimix[ray]'") from None
        self._ray: Any = ray
        self.machine = f"ray {address or 'on this machine'}"
        self.at_once = jobs
        self.threads: int | None = cpus
        try:
            # Told no address, Ray would join whatever cluster was last started on this machine, and wait for one that is gone.
            ray.init(
                address=address or os.environ.get("RAY_ADDRESS", "local"),
                ignore_reinit_error=True,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError) as error:
            raise ValueError(f"there is no Ray cluster at {address!r}: {_one_line(error)}") from error
        for resource, wanted in (("CPU", cpus), ("GPU", gpus)):
            most = max(node["Resources"].get(resource, 0) for node in self._ray.nodes() if node["Alive"])
            if wanted > most:  # Ray would wait for ever
                self.close()
                option = f"{resource.lower()}s"
                raise ValueError(f"{option} must be at most {most:g}, the most that a node of the cluster has, got {wanted}")
        self._execute = ray.remote(num_cpus=cpus, num_gpus=gpus, max_calls=1, max_retries=0)(_execute)

    def start(self, work: Callable[..., Any], arguments: tuple[Any, ...], log: Path) -> Any:
        return self._execute.remote(_packed(work, arguments, log), log.absolute())

    def has_ended(self, job: Any) -> bool:
        return bool(self._ray.wait([job], timeout=0)[0])

    def stop(self, job: Any) -> None:
        self._ray.cancel(job)

    def end(self, job: Any) -> End:
        try:
            end: End = self._ray.get(job)
            return end
        except self._ray.exceptions.TaskCancelledError:
            return STOPPED
        except self._ray.exceptions.RayError as error:
            return End("failed", f"its task ended without a result: {_one_line(error)}")

    def close(self) -> None:
        self._ray.shutdown()


class Slurm:
    """A job of Slurm for every call, submitted by submitit, whose files go to a folder of ``out``."""

    def __init__(
        self,
        out: Path,
        *,
        jobs: int | None = None,
        partition: str | None = None,
        hours: float = 24.0,
        memory: float | None = None,
        cpus: int = 1,
        gpus: int = 0,
        cluster: Literal["slurm", "local"] = "slurm",
    ) -> None:
        try:
            import submitit
        except ModuleNotFoundError:
            raise ValueError("the engine slurm needs the extra [slurm]: pip install 'multimix[slurm]'") from None
        self.machine = f"slurm, partition {partition or 'as preset'}"
        self.at_once = jobs
        self.threads: int | None = cpus
        try:
            self._executor = submitit.AutoExecutor(out.absolute() / "sweep-jobs" / "%j", cluster=cluster)
        except RuntimeError as error:
            raise ValueError(f"jobs of Slurm cannot be submitted here: {_one_line(error)}") from error
        if partition is not None:
            self._executor.update_parameters(slurm_partition=partition)
        if memory is not None:
            self._executor.update_parameters(mem_gb=memory)
        wanted = {"timeout_min": int(60 * hours), "cpus_per_task": cpus, "gpus_per_node": gpus}
        self._executor.update_parameters(name="multimix", **wanted)

    def start(self, work: Callable[..., Any], arguments: tuple[Any, ...], log: Path) -> Any:
        return self._executor.submit(_execute, _packed(work, arguments, log), log.absolute())

    def has_ended(self, job: Any) -> bool:
        # The result is there before Slurm says so, which is not asked more often than once a minute.
        return job.paths.result_pickle.exists() or bool(job.done())

    def stop(self, job: Any) -> None:
        job.cancel(check=False)

    def end(self, job: Any) -> End:
        try:
            end: End = job.result()
            return end
        except Exception:
            return End("failed", f"its job ended without a result, state {job.state}; see {job.paths.stderr}")

    def close(self) -> None: ...


def _packed(work: Callable[..., Any], arguments: tuple[Any, ...], log: Path) -> bytes:
    """What is sent to another process: pickled here, so that what cannot be read there fails inside the call."""
    make_folder(log.parent)
    return pickle.dumps((work, arguments))


def _execute(content: bytes, log: Path) -> End:
    """In the other process: the call, with its output in ``log``."""
    _redirect_output(log)
    try:
        work, arguments = pickle.loads(content)
        return End("done", work(*arguments))
    except KeyboardInterrupt:
        return STOPPED
    except BaseException as error:
        traceback.print_exc()
        return End("failed", f"{type(error).__name__}: {_one_line(error)}")


def _redirect_output(log: Path) -> None:
    """Both streams into the file, those of compiled code, too."""
    handle = no_follow(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.close(handle)
    for text in (sys.stdout, sys.stderr):
        if isinstance(text, io.TextIOWrapper):
            text.reconfigure(line_buffering=True)  # a line is in the file when it is printed
    os.environ.pop("FORCE_COLOR", None)  # it would make a file pass for a terminal
    faulthandler.enable()
    print(f"# {time.strftime('%Y-%m-%d %H:%M:%S')}, pid {os.getpid()}")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
