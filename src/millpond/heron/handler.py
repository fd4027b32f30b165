"""What each request means: an answer at once, or a piece of work that gives one. Knows no socket and no loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Hashable
from typing import Any, NamedTuple

from attrs import frozen

from millpond.errors import ConfigError, MillpondError, StateCorruptError, StateNotFoundError
from millpond.events import Event
from millpond.heron import answers, events, messages
from millpond.heron.answers import Answer, Refuse
from millpond.heron.fetched import READ_SIZE
from millpond.heron.messages import text
from millpond.heron.names import StateKey
from millpond.heron.plan import Plan, Registration, read_coordinator, read_stream_manager
from millpond.heron.registry import Client, Registry
from millpond.heron.scratch import Spool
from millpond.heron.settings import ServerSettings
from millpond.heron.small_save import SmallSave
from millpond.heron.spill import Spill, allowed, pieces
from millpond.heron.states import StateStore

SAVE = "SaveInstanceStateRequest"
_REGISTER_FIRST = "register first: this server has several topologies"


class Work(NamedTuple):
    """
    What has to be done before a request is answered; ``run`` blocks and runs on any thread.

    Attributes:
        request: The request's name.
        run: Does it and gives the answer; raises what the store raises.
        refuse: Makes the answer where that fails.
        key: Works with one key are done one after another, in order; None: with no regard for others.
        cost: What it may hold in memory, in bytes.
        immediate: It waits for nothing but the store.
        in_order: It waits for all that its client asked before, and what comes after waits for it.
    """

    request: str
    run: Callable[[], Answer]
    refuse: Refuse
    key: Hashable = None
    cost: int = 0
    immediate: bool = True
    in_order: bool = False


@frozen
class HangUp:
    """The connection ends without an answer; *reason* is for the log."""

    reason: str


@frozen
class Answered:
    """An answer is there at once; *evicted* is another connection that has to be closed."""

    packet: bytes
    evicted: Client | None = None


Outcome = Work | Answered | HangUp


class _AskedSave(NamedTuple):
    """What a save asks for."""

    topology: str | None
    checkpoint: str
    component: str
    place_index: int
    instance: Any
    reqid: bytes
    peer: str
    plan: Plan | None

    @property
    def key(self) -> StateKey:
        """Where the state goes; ConfigError while nobody knows the topology."""
        return StateKey(_known(self.topology), self.checkpoint, self.component, self.place_index)

    @property
    def order(self) -> Hashable:
        """Works with this are done one after another."""
        return self[:4]

    def refuse(self, reason: str) -> bytes:
        """Give the answer where it fails."""
        return answers.not_saved(self.reqid, self.instance, self.checkpoint, reason)


class Handler:
    """Serves the requests of all connections. Its methods are called on the loop, and never block."""

    def __init__(
        self,
        states: StateStore,
        settings: ServerSettings,
        registry: Registry,
        tell: Callable[[Event], None],
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        """Keep what is given; *later* does a piece of work that nobody waits for, on another thread."""
        self._later = later
        self._states, self._settings, self._registry, self._tell = states, settings, registry, tell
        self._spills: dict[str, Spill] = {}
        self._unrestored: set[str] = set()
        self._verbs: dict[str, Callable[[Client, str, bytes, bytes], Outcome]] = {
            "RegisterTManagerRequest": self._register_coordinator,
            "RegisterTMasterRequest": self._register_coordinator,
            "RegisterStMgrRequest": self._register_stream_manager,
            SAVE: self._save,
            "GetInstanceStateRequest": self._get,
            "CleanStatefulCheckpointRequest": self._clean,
        }

    def handle(self, client: Client, name: str, reqid: bytes, body: bytes) -> Outcome:
        """
        Say what becomes of a request.

        Raises:
            NotThatMessageError: *body* is no *name*.
        """
        return self._verbs[name](client, name, reqid, body)

    # Registration

    def _register_coordinator(self, client: Client, name: str, reqid: bytes, body: bytes) -> Outcome:
        return self._register(client, name, reqid, read_coordinator(name, body))

    def _register_stream_manager(self, client: Client, name: str, reqid: bytes, body: bytes) -> Outcome:
        asked = read_stream_manager(body)
        outcome = self._register(client, name, reqid, asked)
        if self._registry.is_registered(client):
            self._take_plan(asked, client.peer)
        return outcome

    def _register(self, client: Client, name: str, reqid: bytes, asked: Registration) -> Outcome:
        decision = self._registry.register(client, asked)
        if decision.hang_up:
            return HangUp("it registered a second time")
        topology, peer = asked.topology, client.peer
        if decision.refusal:
            self._tell(events.RegistrationRefused(job=topology, peer=peer, reason=decision.refusal))
        else:
            replaced = decision.evicted is not None
            self._tell(events.Registered(job=topology, peer=peer, slot=asked.slot or "", replaced=replaced))
        return Answered(answers.registered(name, reqid, decision.refusal), decision.evicted)

    def _take_plan(self, asked: Registration, peer: str) -> None:
        if asked.plan is None:
            self._tell(events.PlanIgnored(job=asked.topology, peer=peer, slot=asked.slot or ""))
            return
        location = asked.plan.spill_location
        folder = allowed(location, self._settings.spill_roots)
        if folder is None:
            self._spills.pop(asked.topology, None)
            if location is not None:
                self._tell(events.SpillRefused(job=asked.topology, peer=peer, location=location))
        elif (known := self._spills.get(asked.topology)) is None or known.location != folder:
            self._spills[asked.topology] = Spill(folder)
        if folder is not None:
            self._later(self._spills[asked.topology].sweep)

    # Saving

    def _save(self, client: Client, name: str, reqid: bytes, body: bytes) -> Outcome:
        request = messages.parse(name, body)
        checkpoint = request.checkpoint
        has_state = checkpoint.HasField("state")
        if has_state or not checkpoint.HasField("state_location"):
            state = checkpoint.state if has_state else None
            return self.save(client, reqid, request, lambda key, plan: self._states.save(key, state, plan).size)
        return self.save_spilled(client, reqid, request)

    def save_spilled(self, client: Client, reqid: bytes, request: Any) -> Work:
        """Save what lies in the file that *request* names."""
        path = text(request.checkpoint.state_location)
        spill = self._spills.get(self._registry.topology_of(client) or "")

        def store(key: StateKey, plan: Any) -> int:
            if spill is None:
                raise ConfigError(f"the state lies in {path[:200]!r}, and no folder for that is allowed: --spill-root")
            file, size = spill.open(path)
            with file:
                spool = Spool(self._states.scratch.new_path(), size)
                try:
                    spool.add(pieces(file, size, path))
                    self._states.save_spooled(key, spool, plan)
                finally:
                    spool.discard()
            return size

        return self.save(client, reqid, request, store)._replace(immediate=False)

    def save(self, client: Client, reqid: bytes, request: Any, store: Callable[[StateKey, Any], int | None]) -> Work:
        """Give the work of a save: *store* puts the state under a key, and gives its size."""
        asked = self._asked(client, reqid, request)

        def run() -> bytes:
            begun, key = time.monotonic(), asked.key
            self._note_saved(key, asked.peer, store(key, asked.plan) or 0, begun)
            return answers.saved(asked.reqid, asked.instance.SerializeToString(), asked.checkpoint)

        return Work(SAVE, run, asked.refuse, asked.order)

    def save_at_once(self, client: Client, asked: SmallSave, busy: Container[Hashable]) -> bytes | None:
        """
        Save on the loop, where the store never waits: give the answer, or None where it has to be a work after all.

        *busy* has the keys on which something is at work.
        """
        topology = self._registry.topology_of(client)
        if topology is None:
            return None
        component, index, about = asked.instance
        key = StateKey(topology, asked.checkpoint, component, index)
        if key in busy:
            return None
        try:
            begun, state = time.monotonic(), asked.state
            self._states.save(key, state, self._registry.plan_of(topology))
            self._note_saved(key, client.peer, len(state or b""), begun)
            return answers.saved(asked.reqid, about, asked.checkpoint)
        except Exception as error:  # noqa: BLE001 - as on another thread: whatever it is, the request is answered
            return self._refused(client, SAVE, asked.refuse, error)

    def _asked(self, client: Client, reqid: bytes, request: Any) -> _AskedSave:
        instance, topology = request.instance, self._registry.topology_of(client)
        info = instance.info
        return _AskedSave(
            topology,
            text(request.checkpoint.checkpoint_id),
            text(info.component_name),
            info.component_index,
            instance,
            reqid,
            client.peer,
            None if topology is None else self._registry.plan_of(topology),
        )

    def _note_saved(self, key: StateKey, peer: str, size: int, begun: float) -> None:
        """Note and tell that a save is durable."""
        if self._unrestored:
            self._unrestored.discard(key.topology)
        if self._spills and (spill := self._spills.get(key.topology)) is not None:
            spill.done((key.component, key.index))
        if self._tell is not events.ignore:
            self._tell(
                events.StateSaved(
                    job=key.topology,
                    peer=peer,
                    checkpoint=key.checkpoint,
                    component=key.component,
                    index=key.index,
                    size=size,
                    duration_s=time.monotonic() - begun,
                )
            )

    def refuse_save(self, reqid: bytes, request: Any, reason: str) -> bytes:
        """Answer a save that was not carried out."""
        return answers.not_saved(reqid, request.instance, text(request.checkpoint.checkpoint_id), reason)

    # Fetching

    def _get(self, client: Client, name: str, reqid: bytes, body: bytes) -> Outcome:
        request = messages.parse(name, body)
        instance, checkpoint = request.instance, text(request.checkpoint_id)
        place = text(instance.info.component_name), instance.info.component_index
        topology = self._registry.topology_of(client)
        spill = self._spills.get(topology or "")

        def run() -> Answer:
            return self._fetch(StateKey(_known(topology), checkpoint, *place), reqid, instance, spill, client.peer)

        def refuse(reason: str) -> bytes:
            return answers.not_fetched(reqid, instance, checkpoint, reason)

        if not checkpoint:
            return self._begin_empty(topology, reqid, instance, refuse)
        return Work(name, run, refuse, (topology, checkpoint, *place), READ_SIZE)

    def _fetch(self, key: StateKey, reqid: bytes, instance: Any, spill: Spill | None, peer: str) -> Answer:
        begun = time.monotonic()
        try:
            found = self._states.fetch(key)
        except (StateNotFoundError, StateCorruptError):
            self._unrestored.add(key.topology)
            raise
        try:
            if spill is None:
                answer = answers.fetched(reqid, instance, key.checkpoint, found)
            else:
                path = spill.give((key.component, key.index), key.checkpoint, found)
                answer = answers.fetched_at(reqid, instance, key.checkpoint, path)
        except BaseException:
            found.close()
            raise
        if not isinstance(answer, answers.Streamed):
            found.close()
        self._tell(
            events.StateFetched(
                job=key.topology,
                peer=peer,
                checkpoint=key.checkpoint,
                component=key.component,
                index=key.index,
                size=found.seal.size or 0,
                duration_s=time.monotonic() - begun,
            )
        )
        return answer

    def _begin_empty(self, topology: str | None, reqid: bytes, instance: Any, refuse: Refuse) -> Outcome:
        """Begin from nothing, as the empty id asks; not where a restore has just failed to get the state there is."""
        if topology not in self._unrestored or self._settings.strict or self._settings.allow_empty:
            return Answered(answers.no_state(reqid, instance))

        def run() -> bytes:
            if self._states.holds_any(_known(topology)):
                raise ConfigError(
                    f"{topology} has states, and they could not be restored: it does not begin from nothing unless "
                    "--allow-empty says so, or all its checkpoints are cleaned"
                )
            return answers.no_state(reqid, instance)

        return Work("GetInstanceStateRequest", run, refuse)

    # Cleaning

    def _clean(self, client: Client, name: str, reqid: bytes, body: bytes) -> Outcome:
        request = messages.parse(name, body)
        oldest = text(request.oldest_checkpoint_preserved)
        topology = self._registry.topology_of(client)

        def run() -> bytes:
            begun, known = time.monotonic(), _known(topology)
            if request.clean_all_checkpoints:
                gone = self._states.clean_all(known)
                self._unrestored.discard(known)
            else:
                gone = self._states.clean(known, oldest)
            took = time.monotonic() - begun
            self._tell(events.CheckpointsCleaned(job=known, peer=client.peer, checkpoints=tuple(gone), duration_s=took))
            return answers.cleaned(reqid, () if self._settings.strict else gone)

        def refuse(reason: str) -> bytes:
            return answers.cleaned(reqid, refusal=reason)

        return Work(name, run, refuse, ("clean", topology), in_order=True)

    def failed(self, client: Client, work: Work, error: BaseException) -> bytes:
        """Make the answer of a work that failed, and tell of it; what nobody expected is not shown to the client."""
        return self._refused(client, work.request, work.refuse, error)

    def _refused(self, client: Client, request: str, refuse: Refuse, error: BaseException) -> bytes:
        topology = self._registry.topology_of(client) or events.NO_TOPOLOGY
        self._tell(events.RequestFailed(job=topology, peer=client.peer, request=request, error=error))
        return refuse(str(error) if isinstance(error, MillpondError) else f"failed: {type(error).__name__}")


def _known(topology: str | None) -> str:
    if topology is None:
        raise ConfigError(_REGISTER_FIRST)
    return topology
