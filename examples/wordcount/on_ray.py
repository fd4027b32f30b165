"""The eight processes of the word count as Ray actors, which Ray starts again when they are killed."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from attrs import define, field
from ray.exceptions import RayActorError
from ray_ends import RayCoordinatorEnd, RayMemberEnd
from task import read_ground, work
from topology import COORDINATORS, JOB, MEMBERS, Ground

from millpond.coordinator import Coordinator, in_directory

ANSWER_S = 60.0


class _Process:
    """What both kinds of actors are: a log, a thread that does the work, and a process that can be killed."""

    def __init__(self, name: str, ground: str, run: Callable[[Ground], None]) -> None:
        logging.basicConfig(
            format=f"%(asctime)s {name} %(levelname)s %(message)s",
            level=logging.INFO,
            filename=Path(ground).with_name(f"{name}.log"),
            force=True,
        )
        threading.Thread(target=self._work, args=(run, read_ground(Path(ground))), daemon=True).start()

    def _work(self, run: Callable[[Ground], None], ground: Ground) -> None:
        try:
            run(ground)
        finally:
            os._exit(1)  # an actor without its work is of no use: Ray starts it again

    def pid(self) -> int:
        """Give the number of the process."""
        return os.getpid()


class TaskActor(_Process):
    """A task."""

    def __init__(self, name: str, ground: str) -> None:
        """Join the job."""
        self._end = RayMemberEnd(COORDINATORS)
        super().__init__(name, ground, lambda ground: work(ground, name, self._end))

    def order(self, data: bytes) -> None:
        """Take an order of the coordinator."""
        self._end.take(data)


class CoordinatorActor(_Process):
    """A coordinator, which leads or stands by."""

    def __init__(self, name: str, ground: str) -> None:
        """Stand for election."""
        self._end = RayCoordinatorEnd(list(MEMBERS))
        super().__init__(name, ground, lambda ground: self._lead(ground, name))

    def _lead(self, ground: Ground, name: str) -> None:
        with in_directory(ground.records, JOB) as metadata:
            Coordinator(ground.settings, metadata, lambda: self._end, candidate=name).run()

    def report(self, data: bytes) -> None:
        """Take a report of a member."""
        self._end.take(data)


@define
class Actors:
    """All actors of the run, by name. Ray starts them again."""

    ground: Ground
    handles: dict[str, Any] = field(factory=dict)
    ended_alone: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        """Start a Ray of one machine, which nobody else can reach."""
        ray.init(
            num_cpus=1,
            include_dashboard=False,
            object_store_memory=100 << 20,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(self.ground.root / "ray"),
        )

    def start(self, name: str) -> None:
        """Make the actor *name*."""
        kind = ray.remote(CoordinatorActor if name in COORDINATORS else TaskActor)
        options = kind.options(name=name, num_cpus=0, max_restarts=-1, max_concurrency=4)
        self.handles[name] = options.remote(name, str(self.ground.root / "ground.json"))

    def kill(self, name: str) -> None:
        """Kill the actor's process on the spot."""
        os.kill(self._pid(name), signal.SIGKILL)

    def _pid(self, name: str) -> int:
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return int(ray.get(self.handles[name].pid.remote(), timeout=ANSWER_S))
            except RayActorError:  # it is being started again
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def mend(self) -> None:
        """Leave it to Ray."""

    def stop(self) -> None:
        """End all actors, and Ray."""
        ray.shutdown()
