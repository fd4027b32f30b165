"""The readers of bytes of the job coordinator, for the fuzzer's table."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.coordinator import entries, record, wire
from millpond.coordinator.ids import JobCheckpointId, TransactionId
from millpond.coordinator.messages import Alive, Begin, Joined
from millpond.coordinator.state import InlineState, LocatedState, MemberState, NoState, Place, TaskState
from millpond.testing.fuzz.insides import body_of, enveloped, json_mutated
from millpond.testing.fuzz.reader import Reader, of_bytes

_COORDINATION = "millpond-coordination"
_WRITER = "00ff" * 8
_ELECTION = entries.encode_election(entries.Election(3, _WRITER, "host:1", 1_700_000_000_000))
_ENTRY = entries.encode_record(entries.RecordEntry(3, _WRITER, b"data"))
_RECORD = record.encode(
    record.JobRecord(
        "flights",
        "1",
        (
            record.JobCheckpoint(
                JobCheckpointId(7, 12),
                1_700_000_000_123,
                {
                    "count-0": MemberState(Place("count", 0, 2, (0, 64)), TaskState("1700000000123-456")),
                    "count-1": MemberState(Place("count", 1, 2, (64, 128)), InlineState(b"\x00\xff")),
                    "lines": MemberState(Place("lines"), LocatedState("lines/7-12", 9, "blake3:" + 64 * "0")),
                    "split": MemberState(Place("split"), NoState()),
                },
                based_on=JobCheckpointId(6, 1),
            ),
        ),
        TransactionId(7, 1),
    )
)
_HELLO = wire.to_json(wire.ServerHello(1, "00ff", secret=True))
_PROOF = wire.to_json(wire.ClientHello("00ff", "ff00"))
_ALIVE = wire.to_json(Alive(member="count-0", incarnation="00ff", running=TransactionId(7, 1)))
_JOINED = wire.to_json(Joined(member="count-0", incarnation="00ff", place=Place("count", 0, 2, (0, 64))))
_ORDER = Begin(epoch=7, transaction=TransactionId(7, 1), attempt=JobCheckpointId(7, 2))
_BEGIN = wire.to_json(wire.Addressed("count-0", _ORDER))

READERS: Sequence[Reader] = (
    Reader(
        name="coordinator election",
        modules=("millpond.coordinator.entries",),
        read=of_bytes(entries.decode),
        valid=(_ELECTION, _ENTRY),
        insides=(body_of(_COORDINATION, _ELECTION),),
        seal=enveloped(_COORDINATION, "election"),
        mutate=json_mutated,
    ),
    Reader(
        name="coordinator record entry",
        modules=("millpond.coordinator.entries",),
        read=of_bytes(entries.decode),
        valid=(_ENTRY, _ELECTION),
        insides=(body_of(_COORDINATION, _ENTRY),),
        seal=enveloped(_COORDINATION, "record"),
    ),
    Reader(
        name="coordinator record",
        modules=("millpond.coordinator.record",),
        read=of_bytes(record.decode),
        valid=(_RECORD,),
        insides=(body_of(record.MAGIC, _RECORD),),
        seal=enveloped(record.MAGIC, "job-record"),
        mutate=json_mutated,
    ),
    Reader(
        name="report of a member",
        modules=("millpond.coordinator.wire",),
        read=of_bytes(wire.report_of),
        valid=(_ALIVE, _JOINED),
        mutate=json_mutated,
    ),
    Reader(
        name="order to a member",
        modules=("millpond.coordinator.wire",),
        read=of_bytes(wire.addressed_of),
        valid=(_BEGIN,),
        mutate=json_mutated,
    ),
    Reader(
        name="greeting of a coordinator",
        modules=("millpond.coordinator.wire",),
        read=of_bytes(lambda data: wire.hello_of(data, wire.ServerHello)),
        valid=(_HELLO, _PROOF),
        mutate=json_mutated,
    ),
)
