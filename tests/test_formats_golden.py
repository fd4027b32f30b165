"""
Every golden case of Samza's own classes against our formats, both ways.

Where Samza fails or loses data we do better, and the tables here say what: a case that is in no table must give what
Samza gives.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.errors import FormatError, StateCorruptError
from millpond.formats import (
    changelog_marker,
    changelog_offset,
    checkpoint_v1,
    checkpoint_v2,
    local_files,
    log_key,
    store_dirs,
)
from millpond.formats.changelog_marker import KafkaStateCheckpointMarker
from millpond.formats.changelog_offset import KafkaChangelogSSPOffset
from millpond.formats.log_key import KafkaCheckpointLogKey
from millpond.formats.ssp_key import plain_key

SHARED = Path(os.environ.get("MILLPOND_SHARED", Path(__file__).parents[2] / "shared"))
GOLDEN = SHARED / "golden" / "samza"
MISSING = pytest.mark.skip(
    reason="Samza's golden files are not at ../shared/golden/samza beside this repository; they are made by running "
    "Samza 1.8.0's own classes. Set MILLPOND_SHARED to the folder that holds golden/samza"
)

Case = dict[str, Any]
Offsets = dict[SystemStreamPartition, str | None]


def all_cases() -> list[Case]:
    index = GOLDEN / "cases.json"
    return json.loads(index.read_text("ascii"))["cases"] if index.exists() else []


def cases(area: str, *kinds: str, method: str = "") -> Callable[[Any], Any]:
    """Parametrize a test over the golden cases of an area and kinds, or skip it with a reason."""
    chosen = [
        c for c in all_cases() if c["area"] == area and c["kind"] in kinds and c.get("method", "").startswith(method)
    ]
    if not chosen:
        return pytest.mark.parametrize("case", [pytest.param({}, marks=MISSING, id="no golden files")])
    return pytest.mark.parametrize("case", chosen, ids=[c["id"] for c in chosen])


def content(entry: Case | None) -> bytes | None:
    """Read a golden file, which must be the one that the index means."""
    if entry is None:
        return None
    data = (GOLDEN / entry["file"]).read_bytes()
    assert hashlib.sha256(data).hexdigest() == entry["sha256"], f"{entry['file']} was changed"
    return data


def ssp(entry: Case) -> SystemStreamPartition:
    return SystemStreamPartition(entry["system"], entry["stream"], entry["partition"], entry["keyBucket"])


def offset(entry: Case) -> str | None:
    if (repeat := entry.get("offset_repeat")) is None:
        return entry["offset"]
    unit = repeat["unit"]
    return unit * (repeat["chars_utf16"] // (len(unit.encode("utf-16-be")) // 2))


def offsets(entries: list[Case]) -> Offsets:
    return {ssp(entry): offset(entry) for entry in entries}


def v2_of(value: Case) -> Checkpoint:
    return Checkpoint(
        CheckpointId.parse(value["checkpoint-id"]), offsets(value["offsets"]), value["state-checkpoint-markers"]
    )


# --- checkpoint ids


@cases("checkpoint-id", "call", method="deserialize")
def test_an_id_is_parsed_as_java_parses_it(case: Case) -> None:
    """An id is two whole numbers as Java reads them, and anything else is a ValueError."""
    if case["input"] is None:
        with pytest.raises(TypeError):
            CheckpointId.parse(None)
    elif case["result"]["ok"]:
        value = case["result"]["value"]
        parsed = CheckpointId.parse(case["input"])
        assert (parsed.millis, parsed.nanos, str(parsed)) == (value["millis"], value["nanoId"], value["serialize"])
    else:
        with pytest.raises(ValueError, match="not a checkpoint id"):
            CheckpointId.parse(case["input"])


@cases("checkpoint-id", "call", method="compareTo")
def test_ids_are_ordered_as_numbers(case: Case) -> None:
    """Ids are ordered by their two numbers, as Samza orders them."""
    assert [str(name) for name in sorted(map(CheckpointId.parse, case["input"]))] == case["result"]["value"]


# --- checkpoint V1


@cases("checkpoint-v1", "write")
def test_a_v1_is_written_as_samza_writes_it(case: Case) -> None:
    """A V1 of ours has Samza's bytes, or Samza's value where its order is a hash's."""
    ours, samza = checkpoint_v1.encode_offsets(offsets(case["input"]["offsets"])), content(case["output"])
    if case["compare"] == "bytes":
        assert ours == samza
    else:
        assert json.loads(ours) == json.loads(samza)
        assert len(ours) == len(samza)


@cases("checkpoint-v1", "write")
def test_a_v1_of_samza_gives_all_that_went_into_it(case: Case) -> None:
    """A V1 that Samza wrote comes back whole, key buckets too, which Samza itself loses."""
    wanted = offsets(case["input"]["offsets"])
    assert checkpoint_v1.decode_offsets(content(case["output"])) == wanted
    known = {place: offset for place, offset in wanted.items() if offset is not None}
    assert checkpoint_v1.decode(content(case["output"])).offsets == known


@cases("checkpoint-v1", "read")
def test_a_v1_is_read_as_samza_reads_it(case: Case) -> None:
    """What Samza's V1 reader takes gives the same, and what it takes for an absent checkpoint is an error."""
    data, value = content(case["input_bytes"]), case["result"]["value"]
    if value is None:
        with pytest.raises(FormatError):
            checkpoint_v1.decode(data)
    else:
        assert checkpoint_v1.decode_offsets(data) == offsets(value["offsets"])


# --- checkpoint V2

IN_OUR_PROPERTY = {  # Samza loses these, or cannot read them: they ride in the property that it ignores
    "checkpoint-v2/dotted-stream",
    "checkpoint-v2/dotted-stream-numeric",
    "checkpoint-v2/dotted-system",
    "checkpoint-v2/dotted-collision",
    "checkpoint-v2/key-bucket",
    "checkpoint-v2/key-buckets-collide",
}
NOT_WRITTEN = {  # Samza writes these, and they are of no use to anybody
    "checkpoint-v2/null-marker": FormatError,
    "checkpoint-v2/null-id": TypeError,  # there is no value for it
    "checkpoint-v2/null-offset": FormatError,
    "checkpoint-v2/null-store-map": TypeError,
    "checkpoint-v2/null-offsets-map": TypeError,
    "checkpoint-v2/null-markers-map": AttributeError,
}
V2_READ_BETTER: dict[str, object] = {
    "checkpoint-v2/read/unknown-property-first": FormatError,  # a `millpond` that is not ours
    "checkpoint-v2/read/marker-null": {"checkpoint-id": "1-2", "offsets": [], "state-checkpoint-markers": {"f": {}}},
    "checkpoint-v2/read/id-null": FormatError,
    "checkpoint-v2/read/id-absent": FormatError,
    "checkpoint-v2/read/json-null": FormatError,
    "checkpoint-v2/read/key-five-parts": {  # the partition is the last part, where Samza takes the third
        "checkpoint-id": "1-2",
        "offsets": [{"system": "kafka", "stream": "a.4.x", "partition": 9, "keyBucket": -1, "offset": "5"}],
        "state-checkpoint-markers": {},
    },
}


@cases("checkpoint-v2", "write", "write-fail")
def test_a_v2_is_written_as_samza_writes_it(case: Case) -> None:
    """A V2 has Samza's bytes; where those lose an input, what Samza can read is in its place and the rest in ours."""
    if (error := NOT_WRITTEN.get(case["id"])) is not None:
        with pytest.raises(error):
            checkpoint_v2.encode(v2_of(case["input"]))
        return
    assert case["kind"] == "write"
    checkpoint = v2_of(case["input"])
    ours = checkpoint_v2.encode(checkpoint)
    assert checkpoint_v2.decode(ours) == checkpoint
    if case["id"] in IN_OUR_PROPERTY:
        plain = [key for key in map(plain_key, checkpoint.offsets) if key is not None]
        document = json.loads(ours)
        assert list(document["input-offsets"]) == plain
        assert len(document["millpond"]["offsets"]) == len(checkpoint.offsets) - len(plain) > 0
    else:
        assert ours == content(case["output"])


@cases("checkpoint-v2", "write")
def test_a_v2_of_samza_gives_what_went_into_it(case: Case) -> None:
    """A V2 that Samza wrote comes back, dotted streams too; what its bytes no longer hold does not."""
    data = content(case["output"])
    lost = {
        "checkpoint-v2/dotted-system": {SystemStreamPartition("kafka", "east.orders", 3): "42"},
        "checkpoint-v2/dotted-collision": {SystemStreamPartition("a", "b.c", 3): "2"},
        "checkpoint-v2/key-bucket": {SystemStreamPartition("kafka", "elastic", 1): "5"},
        "checkpoint-v2/key-buckets-collide": {SystemStreamPartition("kafka", "elastic", 1): "6"},
    }
    if case["id"] == "checkpoint-v2/null-id":
        with pytest.raises(FormatError, match="no id"):
            checkpoint_v2.decode(data)
    elif case["id"] == "checkpoint-v2/null-marker":
        assert [dict(stores) for stores in checkpoint_v2.decode(data).markers.values()] == [{}]
    else:
        wanted = v2_of(case["input"])
        assert checkpoint_v2.decode(data).offsets == lost.get(case["id"], wanted.offsets)
        assert checkpoint_v2.decode(data).markers == wanted.markers
        assert checkpoint_v2.decode(data).id == wanted.id


@cases("checkpoint-v2", "read")
def test_a_v2_is_read_as_samza_reads_it(case: Case) -> None:
    """What Samza's V2 reader takes gives the same, and what it refuses is a FormatError."""
    data, result = content(case["input_bytes"]), case["result"]
    wanted = V2_READ_BETTER.get(case["id"], result["value"] if result["ok"] else FormatError)
    if wanted is FormatError:
        with pytest.raises(FormatError):
            checkpoint_v2.decode(data)
    else:
        assert checkpoint_v2.decode(data) == v2_of(wanted)


# --- keys of the checkpoint topic


def key_of(value: Case) -> KafkaCheckpointLogKey:
    return KafkaCheckpointLogKey(value["type"], value["taskName"], value["grouper"])


@cases("checkpoint-log-key", "write")
def test_a_log_key_has_samzas_bytes(case: Case) -> None:
    """A key of the checkpoint topic has Samza's bytes, since the topic is compacted by them, and reads back."""
    key = key_of(case["input"])
    assert log_key.encode(key) == content(case["output"])
    assert log_key.decode(content(case["output"])) == key


@cases("checkpoint-log-key", "write-fail")
def test_a_log_key_that_samza_refuses_is_refused(case: Case) -> None:
    """A key without a task, a type or a grouper is a FormatError."""
    with pytest.raises(FormatError):
        log_key.encode(key_of(case["input"]))


@cases("checkpoint-log-key", "read")
def test_a_log_key_is_read_as_samza_reads_it(case: Case) -> None:
    """A key in any order is read; one without a task, which Samza takes, is a FormatError."""
    data = content(case["input_bytes"])
    if case["result"]["ok"] and case["id"] != "checkpoint-log-key/read/no-task":
        assert log_key.decode(data) == key_of(case["result"]["value"])
    else:
        with pytest.raises(FormatError):
            log_key.decode(data)


# --- changelog markers

MARKERS_REFUSED = {
    "changelog-marker/read/key-bucket-null",  # Samza: silently bucket 0
    "changelog-marker/read/partition-text",  # Samza: silently partition 0
    "changelog-marker/read/no-ssp",  # Samza: a marker of no changelog
    "changelog-marker/read/ssp-null",
    "changelog-marker/read/json-null",
}


def marker_of(value: Case) -> KafkaStateCheckpointMarker:
    return KafkaStateCheckpointMarker(ssp(value["changelog-ssp"]), value["changelog-offset"], value["version"])


@cases("changelog-marker", "write")
def test_a_marker_has_samzas_text(case: Case) -> None:
    """A changelog marker has Samza's text and reads back; one of no changelog is a FormatError."""
    text = content(case["output"]).decode("utf-8")
    if case["id"] == "changelog-marker/null-ssp":
        with pytest.raises(FormatError):
            changelog_marker.decode(text)
        return
    marker = marker_of(case["input"])
    assert changelog_marker.encode(marker) == text
    assert changelog_marker.decode(text) == marker
    assert changelog_marker.decode(text).version == marker.version


@cases("changelog-marker", "read")
def test_a_marker_is_read_as_samza_reads_it(case: Case) -> None:
    """What Samza reads as a marker gives the same; what it silently misreads, or refuses, is a FormatError."""
    data = content(case["input_bytes"])
    text = None if data is None else data.decode("utf-8")
    if case["result"]["ok"] and case["id"] not in MARKERS_REFUSED:
        wanted = marker_of(case["result"]["value"])
        assert changelog_marker.decode(text) == wanted
        assert changelog_marker.decode(text).version == wanted.version
    else:
        with pytest.raises(FormatError):
            changelog_marker.decode(text)


@cases("changelog-marker", "call")
def test_markers_give_changelog_offsets(case: Case) -> None:
    """The markers under the changelog's factory give changelogs and offsets; those of other backends do not count."""
    if case["result"]["ok"]:
        value = case["result"]["value"] or []
        assert changelog_marker.changelog_offsets(case["input"]) == offsets(value)
    else:
        with pytest.raises(FormatError):
            changelog_marker.changelog_offsets(case["input"])


# --- changelog offsets in a V1

WHAT_WAS_WRITTEN = {  # Samza splits at every colon; we take what was written behind the first
    "changelog-ssp-offset/parse/1-2:": "",
    "changelog-ssp-offset/parse/1-2:5:6": "5:6",
    "changelog-ssp-offset/parse/1-2:5:": "5:",
    "changelog-ssp-offset/parse/1-2::5": ":5",
}
NOT_READ_BACK = {  # Samza writes these and cannot read them
    "changelog-ssp-offset/format/",
    "changelog-ssp-offset/format/null",
    "changelog-ssp-offset/format/a:b",
}


@cases("changelog-ssp-offset", "call", method="fromString")
def test_a_changelog_offset_is_parsed_as_samza_parses_it(case: Case) -> None:
    """A changelog's offset in a V1 is all behind the first colon, which is what Samza wrote."""
    text, result = case["input"], case["result"]
    if case["id"] in WHAT_WAS_WRITTEN:
        assert changelog_offset.decode(text) == KafkaChangelogSSPOffset(
            CheckpointId(1, 2), WHAT_WAS_WRITTEN[case["id"]]
        )
    elif result["ok"]:
        value = result["value"]
        parsed = changelog_offset.decode(text)
        assert parsed == KafkaChangelogSSPOffset(CheckpointId.parse(value["checkpoint-id"]), value["offset"])
        assert changelog_offset.encode(parsed) == value["toString"]
    else:
        with pytest.raises(FormatError):
            changelog_offset.decode(text)


@cases("changelog-ssp-offset", "call", method="toString")
def test_a_changelog_offset_has_samzas_text(case: Case) -> None:
    """A changelog's offset has Samza's text; one that Samza could not read back is a FormatError."""
    value = case["input"]
    if value["checkpoint-id"] is None:
        with pytest.raises(TypeError):  # there is no value for it
            CheckpointId.parse(value["checkpoint-id"])
        return
    parts = KafkaChangelogSSPOffset(CheckpointId.parse(value["checkpoint-id"]), value["offset"])
    if case["id"] in NOT_READ_BACK:
        with pytest.raises(FormatError):
            changelog_offset.encode(parts)
    else:
        assert changelog_offset.encode(parts) == case["result"]["value"]


# --- a store's local files

FILES_READ_BETTER: dict[str, object] = {
    "local-files/read/v2-is-word": FormatError,  # Samza takes damaged text for the offset itself
    "local-files/read/v2-is-empty-text": FormatError,
    "local-files/read/v2-is-null-json": FormatError,
    "local-files/read/v2-is-array": FormatError,
    "local-files/read/v2-truncated-json": FormatError,
    "local-files/read/text-flipped": StateCorruptError,  # Samza: no offsets, without an error
    "local-files/read/crc-flipped": StateCorruptError,
    "local-files/read/file-plain-text": StateCorruptError,
    "local-files/read/file-extra-bytes": StateCorruptError,
    "local-files/read/text-flipped-bare-good": {SystemStreamPartition("kafka", "my-store-changelog", 3): "811"},
    "local-files/read/v2-dotted": {SystemStreamPartition("kafka", "my.store", 3): "811"},
}
CHECKPOINT_FILES_DAMAGED = {
    "local-files/read/checkpoint-v2-absent": StateCorruptError,  # no bytes are not an absent file
    "local-files/read/checkpoint-v2-flipped": StateCorruptError,
    "local-files/read/checkpoint-v2-plain-text": StateCorruptError,
    "local-files/read/checkpoint-v2-cut": StateCorruptError,
    "local-files/read/checkpoint-v2-bad-json": FormatError,
    "local-files/read/ascii-jvm-checkpoint-v2": StateCorruptError,
}


def files_of(case: Case) -> dict[str, bytes]:
    return {name: content(entry) for name, entry in case["files"].items()}


@cases("local-files", "write", method="writeOffsetFile")
def test_offset_files_have_samzas_bytes_and_are_read_back(case: Case) -> None:
    """A store's offset files have Samza's bytes, and give every input back, dotted streams too."""
    wanted, side = offsets(case["input"]["offsets"]), case["input"]["isSideInput"]
    files = files_of(case)
    assert local_files.encode_offsets(wanted, side_input=side) == files
    assert local_files.decode_offsets(files, list(wanted), side_input=side) == wanted
    assert local_files.offsets_valid(wanted, list(wanted)) == bool(wanted)


@cases("local-files", "write-fail")
def test_offset_files_that_samza_begins_and_cannot_end_are_not_begun(case: Case) -> None:
    """A null offset, no offset or too long a text is refused before there is a file."""
    with pytest.raises(FormatError):
        local_files.encode_offsets(offsets(case["input"]["offsets"]), side_input=case["input"]["isSideInput"])


@cases("local-files", "read", method="readOffsetFile")
def test_offset_files_are_read_as_samza_reads_them(case: Case) -> None:
    """What Samza reads in offset files gives the same; damage is an error, or the legacy file stands in."""
    expected = [ssp(entry) for entry in case["input"]["expected_ssps"]]
    side = case["input"]["isSideInput"]
    better = FILES_READ_BETTER.get(case["id"])
    if isinstance(better, type):
        with pytest.raises(better):
            local_files.decode_offsets(files_of(case), expected, side_input=side)
        return
    wanted = offsets(case["result"]["value"]) if better is None else better
    read = local_files.decode_offsets(files_of(case), expected, side_input=side)
    assert read == wanted
    assert local_files.offsets_valid(read, expected) == (better is not None or case["samza_says_valid"]["value"])


@cases("local-files", "write", method="writeCheckpointV2File")
def test_a_checkpoint_file_has_samzas_bytes(case: Case) -> None:
    """The CHECKPOINT-V2 file has Samza's bytes and reads back."""
    checkpoint, files = v2_of(case["input"]), files_of(case)
    assert {local_files.CHECKPOINT: local_files.encode_checkpoint(checkpoint)} == files
    assert local_files.decode_checkpoint(files[local_files.CHECKPOINT]) == checkpoint


@cases("local-files", "read", method="readCheckpointV2File")
def test_a_damaged_checkpoint_file_is_named(case: Case) -> None:
    """A CHECKPOINT-V2 file is read as Samza reads it, and a damaged one is a named error."""
    data = content(case["input_bytes"]) or b""
    if (error := CHECKPOINT_FILES_DAMAGED.get(case["id"])) is not None:
        with pytest.raises(error):
            local_files.decode_checkpoint(data)
    else:
        assert local_files.decode_checkpoint(data) == v2_of(case["result"]["value"])


@cases("local-files", "call", method="isStaleStore")
def test_a_store_is_stale_when_samza_says_so(case: Case) -> None:
    """A directory is stale by the age of its first reference file, and at once if it has none."""
    given = case["input"]
    times = {name.removesuffix("_mtime_ms"): time for name, time in given.items() if name.endswith("_mtime_ms")}
    if "file" in given:
        times = {given["file"]: given["mtime_ms"]}
    stale = local_files.is_stale(times, given["retention_ms"], given["now_ms"], side_input=False)
    assert stale == case["result"]["value"]


# --- where Samza keeps a task's stores


@cases("store-dirs", "call", method="getTaskStoreDir")
def test_a_stores_directory_is_where_samza_puts_it(case: Case) -> None:
    """A store's directory has Samza's name, but a standby task with a dash in its name keeps all of it."""
    given, value = case["input"], case["result"]["value"]
    task = store_dirs.active_task(given["task"]) if given["mode"] == "Standby" else given["task"]
    wanted = "BASE/s/a-b" if case["id"] == "store-dirs/standby|Standby-a-b-0" else value["dir"]
    assert f"BASE/{store_dirs.task_dir(given['store'], task)}" == wanted
    if "checkpoint-id" in given:
        commit = CheckpointId.parse(given["checkpoint-id"])
        assert f"BASE/{store_dirs.checkpoint_dir(given['store'], task, commit)}" == value["checkpoint_dir"]


@cases("store-dirs", "call", method="getTaskStoreCheckpointDirs")
def test_a_tasks_checkpoint_directories_are_its_own(case: Case) -> None:
    """The listing gives a task's own checkpoint directories, where Samza's gives other tasks' and misses some."""
    given = case["input"]
    ours = {
        "store-dirs/list": {"1-5-5": CheckpointId(5, 5), "1-6-6": CheckpointId(6, 6)},
        "store-dirs/list-store-with-space": {"t-1-1": CheckpointId(1, 1)},
    }
    assert store_dirs.checkpoints_of(given["task"], given["children_of_store_dir"]) == ours[case["id"]]


# --- no case is passed over


def asked_for() -> Iterator[tuple[str, str]]:
    """Give the areas and kinds that the tests above are about."""
    yield from {"checkpoint-id": "call", "changelog-ssp-offset": "call", "store-dirs": "call"}.items()
    for kind in ("write", "write-fail", "read", "call"):
        for area in ("checkpoint-v1", "checkpoint-v2", "checkpoint-log-key", "changelog-marker", "local-files"):
            yield area, kind


@pytest.mark.skipif(not all_cases(), reason=MISSING.kwargs["reason"])
def test_every_exception_from_samza_is_a_case() -> None:
    """Each name in the tables above is a golden case, and no case of our areas is of a kind that no test asks for."""
    known = {case["id"]: (case["area"], case["kind"]) for case in all_cases()}
    tables = [IN_OUR_PROPERTY, NOT_WRITTEN, V2_READ_BETTER, MARKERS_REFUSED, WHAT_WAS_WRITTEN, NOT_READ_BACK]
    named = set().union(*tables, FILES_READ_BETTER, CHECKPOINT_FILES_DAMAGED)
    assert named <= set(known)
    ours = {area for area, _ in asked_for()}
    assert {pair for pair in known.values() if pair[0] in ours} <= set(asked_for())
