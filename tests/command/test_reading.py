"""Reading a job: what it gives, and that nobody notices."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import millpond
from millpond.errors import (
    ConfigError,
    StateNotFoundError,
)
from millpond.events import Event, MarkerIgnored, RestoreProgress, StoreRestored
from millpond.reading import JobReader, explain, open_store, verify

WORKER = """
import sys
import millpond
from millpond import SystemStreamPartition

config, task = sys.argv[1:3]
with millpond.open_job(config) as job, job.open_task(task) as opened:
    number = int(next(iter(opened.offsets.values()), -1))
    commits = 0
    print("ready", flush=True)
    for order in sys.stdin:
        number += 1
        commits += 1
        for plane in range(50):
            opened.store("delays")[f"UA{plane:02}"] = {"commit": number}
        opened.processed(SystemStreamPartition("kafka", "flights.2013", 0), number)
        print(opened.commit_now(20).id, flush=True)
print("clean", commits, flush=True)
"""


class Worker:
    """A job in a process of its own, which commits when it is told to."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert "ready" == self.said()

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def order(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("commit\n")
        self.process.stdin.flush()

    def commit(self) -> str:
        self.order()
        return self.said()

    def end(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.said()


@contextmanager
def live(config: Path, task: str = "EWR") -> Iterator[Worker]:
    command = [sys.executable, "-c", WORKER, str(config), task]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Give every file and folder below *root*, with all that reading must not change."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(root))] = (
            content,
            status.st_size,
            status.st_mtime_ns,
            status.st_mode,
            status.st_nlink,
            status.st_ino,
        )
    return found


def read_everything(config: Path, task: str = "EWR") -> None:
    with JobReader(config) as reader:
        for each in reader.checkpoints(task):
            reader.listed(task, str(each.checkpoint.id))
        with open_store(reader, task, "delays") as (_, store):
            assert 50 == len(list(store.scan()))
        assert all(finding.good for finding in verify(reader, task))
        assert explain(reader, task).possible


def states(config: Path, task: str = "EWR", at: str | None = None) -> dict[tuple[str, str], str]:
    with JobReader(config) as reader:
        return {(f.store, f.backend): f.state for f in verify(reader, task, at)}


# Nobody notices


def test_a_live_job_finds_every_byte_as_it_was(job: tuple[Path, list[str]]):
    """Listing, reading, verifying and planning change no file of a job that is open, and it commits on afterwards."""
    config, _ = job
    with live(config) as worker:  # which has tidied up when it says that it is ready
        before = tree(config.parent)

        read_everything(config)

        assert before == tree(config.parent)
        worker.commit()
        assert "clean 1" == worker.end()


def test_a_job_that_commits_all_the_time_can_be_read(job: tuple[Path, list[str]]):
    """While checkpoints are superseded every few milliseconds, each read gives one commit, whole, and fences nobody."""
    config, _ = job
    with live(config) as worker, JobReader(config) as reader:
        for _ in range(30):
            worker.order()
        for _ in range(5):
            with open_store(reader, "EWR", "delays") as (id, store):
                seen = {value["commit"] for _, value in store.scan()}
                assert 1 == len(seen), id
        for _ in range(30):
            worker.said()
        assert "clean 30" == worker.end()
        assert "33" == next(iter(reader.checkpoint("EWR").offsets.values()))


def test_nothing_is_left_in_the_temporary_folder(
    still_job: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What was restored for reading is gone afterwards, after errors too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config, _ = still_job

    read_everything(config)
    with JobReader(config) as reader, pytest.raises(RuntimeError), open_store(reader, "EWR", "delays"):
        assert 1 == len(list(tmp_path.iterdir()))
        raise RuntimeError

    assert [] == list(tmp_path.iterdir())


AS_NOBODY = """
import os, sys
from millpond.cli import main

command = ["checkpoints", "verify", "--json", "-t", "EWR", "-c", sys.argv[1]]
if os.geteuid() == 0:  # root may write anything; and nobody may find no module that is not loaded yet
    output, sys.stdout = sys.stdout, open(os.devnull, "w")
    main(command, standalone_mode=False)
    sys.stdout = output
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
main(command)
"""


def test_files_that_may_only_be_read_are_enough(readable_job: Path):
    """Somebody who may read the job's files and write none of them can look at all of it."""
    command = [sys.executable, "-c", AS_NOBODY, str(readable_job)]

    said = subprocess.run(command, capture_output=True, timeout=60, check=False)

    assert (0, b"") == (said.returncode, said.stderr)
    copies = json.loads(said.stdout)["copies"]
    assert {"ok"} == {copy["state"] for copy in copies}
    assert 7 == len(copies)


def test_a_reader_refuses_to_write(still_job: tuple[Path, list[str]]):
    """A store that was opened for reading takes no put and no delete, whatever its serdes."""
    with JobReader(still_job[0]) as reader:
        for name, key, value in (("delays", "UA00", {}), ("raw", b"plain", b"new")):
            with open_store(reader, "EWR", name) as (_, store):
                with pytest.raises(ConfigError, match="reading only"):
                    store.put(key, value)
                with pytest.raises(ConfigError, match="reading only"):
                    store.delete(key)


# Records and stores


def test_every_retained_checkpoint_can_be_read_as_it_was(still_job: tuple[Path, list[str]]):
    """Each listed checkpoint gives the values of its own commit, by its id, in every serde."""
    config, ids = still_job
    with JobReader(config) as reader:
        assert ids[:0:-1] == [str(each.checkpoint.id) for each in reader.checkpoints("EWR")]
        for number, id in list(enumerate(ids))[1:]:
            with open_store(reader, "EWR", "delays", id) as (read, store):
                assert (id, {"commit": number}, None) == (str(read), store.get("UA07"), store.get("nobody"))
            with open_store(reader, "EWR", "days", id) as (_, store):
                assert list(range(-2, number - 1)) == [key for key, _ in store.scan()]
            with open_store(reader, "EWR", "raw", id) as (_, store):
                assert [b"plain"] == [key for key, _ in store.scan(b"a", b"z", reverse=True)]
                assert {b"plain": b"text"} == store.get_many([b"plain", b"none"])


def test_a_pin_outlives_its_record_and_names_its_checkpoint(job: tuple[Path, list[str]], fill):
    """A pinned checkpoint is listed and restored by the pin's name when its record is long superseded."""
    config, ids = job
    with JobReader(config) as reader:
        assert ids[-1] == str(reader.pin("EWR", None, "before"))
        fill(config, 4)
        (pinned,) = [each for each in reader.checkpoints("EWR") if each.pins]
        assert (ids[-1], ("before",), False) == (str(pinned.checkpoint.id), pinned.pins, pinned.listed)
        assert pinned == reader.listed("EWR", "before")
        with open_store(reader, "EWR", "delays", "before") as (id, store):
            assert (ids[-1], {"commit": 3}) == (str(id), store.get("UA00"))
        assert ids[-1] == str(reader.unpin("EWR", "before"))
        assert {} == reader.manager.pins("EWR")


def test_what_is_not_there_is_named(still_job: tuple[Path, list[str]]):
    """A task, store, checkpoint or pin that nobody knows is an error that says which ones there are."""
    with JobReader(still_job[0]) as reader:
        with pytest.raises(StateNotFoundError, match="no task 'JFK'; it has 'EWR', 'Partition 0'"):
            reader.check_task("JFK")
        with pytest.raises(StateNotFoundError, match="no store 'dalays'; it has delays, raw, days"):
            reader.store("dalays")
        with pytest.raises(StateNotFoundError, match="'Partition 0' has no checkpoint yet"):
            reader.checkpoint("Partition 0")
        with pytest.raises(StateNotFoundError, match="neither the id of a checkpoint nor a pin; pins: none"):
            reader.checkpoint("EWR", "before")
        with pytest.raises(StateNotFoundError, match="no checkpoint 1-2"):
            reader.checkpoint("EWR", "1-2")
        with pytest.raises(StateNotFoundError, match="no pin 'before'"):
            reader.unpin("EWR", "before")


def test_progress_reaches_the_listener(still_job: tuple[Path, list[str]]):
    """Whoever reads can show how the restore goes."""
    told: list[Event] = []
    with JobReader(still_job[0], listener=told.append) as reader, open_store(reader, "EWR", "delays"):
        pass

    kinds = {type(event) for event in told}
    assert {RestoreProgress, StoreRestored} <= kinds | {MarkerIgnored}


def test_another_serde_is_refused(job: tuple[Path, list[str]]):
    """A store whose configuration no longer fits its bytes is not read wrongly."""
    config, _ = job
    config.write_text(config.read_text().replace('key = "str"', 'key = "json"'))

    with (
        JobReader(config) as reader,
        pytest.raises(ConfigError, match="written with key = 'str'"),
        open_store(reader, "EWR", "delays"),
    ):
        pass


def test_a_plan_says_that_another_serde_is_refused(job: tuple[Path, list[str]]):
    """What a restore would refuse is no possible plan, and the reason is the restore's."""
    config, _ = job
    config.write_text(config.read_text().replace('key = "str"', 'key = "json"'))

    with JobReader(config) as reader:
        plan = explain(reader, "EWR")

    assert not plan.possible
    assert ["written with key = 'str'" in store.reason for store in plan.stores if store.source is None] == [True]


# Damage


def test_every_copy_is_tried_by_itself(job: tuple[Path, list[str]], images):
    """A flipped bit in one backend's file, a missing image in another and a whole local one are told apart."""
    config, _ = job
    root = config.parent
    # Links share their bytes: each place gets files of its own first.
    for name in ("archive", "state dir"):
        _unlink_from_others(root / name)
    _flip_a_bit(images(root / "archive", "delays")[-1])
    shutil.rmtree(images(root / "archive", "raw")[-1])

    with JobReader(config) as reader:
        (damaged,) = [finding for finding in verify(reader, "EWR") if finding.state == "corrupt"]
    assert re.match(r"\d+\.sst is damaged: its digest is", damaged.detail)  # not where it lay meanwhile
    assert {
        ("delays", "local"): "ok",
        ("delays", "archive"): "corrupt",
        ("delays", "second"): "ok",
        ("raw", "local"): "ok",
        ("raw", "archive"): "missing",
        ("days", "local"): "ok",
        ("days", "archive"): "ok",
    } == states(config)


def test_a_damaged_local_image_is_found(job: tuple[Path, list[str]], images):
    """The image on the local disk is compared with its digests though it was sealed in this boot."""
    config, _ = job
    _unlink_from_others(config.parent / "state dir")
    (shelves,) = (config.parent / "state dir").rglob("images")
    _flip_a_bit(images(shelves, "raw")[-1])

    found = states(config)

    assert {("raw", "local"): "corrupt"} == {copy: state for copy, state in found.items() if state != "ok"}


def _unlink_from_others(folder: Path) -> None:
    for path in folder.rglob("*.sst"):
        copied = path.read_bytes()
        path.unlink()
        path.write_bytes(copied)


def _flip_a_bit(image: Path) -> None:
    path = max(image.glob("*.sst"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_backend_that_was_renamed_or_left_out_is_absent(job: tuple[Path, list[str]]):
    """A marker of no configured section, and a configured backend without a marker, are reported and are no damage."""
    config, _ = job
    config.write_text(config.read_text().replace("second", "third"))

    found = states(config)

    assert ("absent", "absent") == (found["delays", "second"], found["delays", "third"])


def test_a_store_without_any_copy_is_missing(job: tuple[Path, list[str]]):
    """A store that the checkpoint knows and no configured backend has is not passed over."""
    config, _ = job
    with JobReader(config) as reader:
        checkpoint = reader.checkpoint("EWR")
        markers = {"archive": {"raw": checkpoint.markers["archive"]["raw"]}}
        claim = reader.manager.claim("EWR")
        bare = millpond.Checkpoint(
            millpond.CheckpointId.after(checkpoint.id, checkpoint.id.millis),
            markers=markers,
            claim=claim,
            images=checkpoint.images,
        )
        reader.manager.write(claim, bare, after=checkpoint.id)

        found = {(f.store, f.backend): f.state for f in verify(reader, "EWR")}

    assert ("missing", "missing", "missing") == (
        found["delays", "archive"],
        found["delays", "second"],
        found["days", "archive"],
    )


def test_a_plugin_that_fails_is_unreachable(job: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch):
    """An error of a class that nobody knows is reported with its class, and the other copies are tried all the same."""
    from millpond_rocksdb.local import LocalRestore

    def fail(self: object, target: object) -> None:
        raise ConnectionResetError("by peer")

    monkeypatch.setattr(LocalRestore, "restore", fail)
    with JobReader(job[0]) as reader:
        findings = list(verify(reader, "EWR"))

    assert {"local": "ok", "archive": "unreachable", "second": "unreachable"} == {f.backend: f.state for f in findings}
    assert {"ConnectionResetError: by peer", ""} == {f.detail for f in findings}


def test_a_checkpoint_that_is_superseded_meanwhile_is_no_damage(job: tuple[Path, list[str]], fill):
    """When a live job drops the checkpoint that is being verified, the answer says so, and how to hold it."""
    config, _ = job
    with JobReader(config) as reader:
        findings = verify(reader, "EWR")
        assert "ok" == next(findings).state
        fill(config, 4)

        with pytest.raises(StateNotFoundError, match=r"superseded checkpoint .* pin it first"):
            list(findings)


def test_reading_never_takes_an_older_checkpoint(job: tuple[Path, list[str]], images):
    """With `on_damage = "older"` a damaged newest checkpoint is still an error to a reader, not older values."""
    config, ids = job
    config.write_text(config.read_text().replace("attempts = 1", 'attempts = 1\non_damage = "older"'))
    shutil.rmtree(images(config.parent / "archive", "raw")[-1])

    with JobReader(config) as reader:
        with pytest.raises(StateNotFoundError, match=ids[-1]), open_store(reader, "EWR", "raw"):
            pass
        with open_store(reader, "EWR", "raw", ids[-2]) as (id, _):
            assert ids[-2] == str(id)


# Plans


def test_a_plan_prefers_the_local_image(still_job: tuple[Path, list[str]]):
    """The newest checkpoint comes from the disk, with the backends behind it, in order."""
    config, ids = still_job
    with JobReader(config) as reader:
        plan = explain(reader, "EWR")

    assert plan.checkpoint is not None
    assert (ids[-1], True) == (str(plan.checkpoint.id), plan.possible)
    assert {"delays": "local", "raw": "local", "days": "local"} == {s.store: s.source for s in plan.stores}
    assert [("local", "first"), ("archive", "fallback"), ("second", "fallback")] == [
        (candidate.source, candidate.verdict) for candidate in plan.stores[0].candidates
    ]


def test_a_plan_says_why_the_local_image_is_of_no_use(job: tuple[Path, list[str]]):
    """An older checkpoint, or an empty disk, comes from the backends, and the plan says what this disk has instead."""
    config, ids = job
    with JobReader(config) as reader:
        older = explain(reader, "EWR", ids[1]).stores[0]
        shutil.rmtree(config.parent / "state dir")
        wiped = explain(reader, "EWR").stores[0]

    assert ("archive", "archive") == (older.source, wiped.source)
    assert "this disk has " + ids[-1] in older.candidates[0].reason
    assert "this disk has none" in wiped.candidates[0].reason


def test_a_plan_of_a_task_that_never_committed_is_empty(still_job: tuple[Path, list[str]]):
    """Without a record every store begins empty."""
    with JobReader(still_job[0]) as reader:
        plan = explain(reader, "Partition 0")

    assert (None, True, {"new"}) == (plan.checkpoint, plan.possible, {store.source for store in plan.stores})


def test_a_plan_that_would_be_refused_says_so_for_each_store(job: tuple[Path, list[str]]):
    """A store whose backend is no longer on its restore list is refused with the reason; the others keep their plan."""
    config, _ = job
    text = config.read_text().replace(
        'backup = ["archive", "second"]\nrestore = ["archive", "second"]', 'backup = ["third"]'
    )
    text += '\n[backends.third]\ntype = "rocksdb-local"\n[stores.later]\nengine = "rocksdb"\nbackup = ["third"]\n'
    config.write_text(text)

    with JobReader(config) as reader:
        plan = explain(reader, "EWR")

    assert {"delays": None, "raw": "local", "days": "local", "later": "new"} == {s.store: s.source for s in plan.stores}
    assert not plan.possible
    assert "restore list (third) does not name" in plan.stores[0].reason
    assert [("local", "rejected"), ("third", "rejected"), ("archive", "rejected"), ("second", "rejected")] == [
        (candidate.source, candidate.verdict) for candidate in plan.stores[0].candidates
    ]


def test_a_plan_for_another_layout_is_refused(job: tuple[Path, list[str]]):
    """A checkpoint that was made with other tasks is not planned as if it fitted."""
    config, _ = job
    config.write_text(config.read_text().replace('"Partition 0"]', '"Partition 0", "Partition 1"]'))

    with JobReader(config) as reader:
        plan = explain(reader, "EWR")

    assert not plan.possible
    assert "made with 2 tasks" in str(plan.refusal)
