"""
How to give Millpond a fault of ``docs/faults.md``: one small edit each, and the test that has to notice.

``python tests/programs/break_code.py`` makes each edit in a copy of the tree, and sees that the test fails there.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Breakage:
    """
    One edit that brings a fault in.

    Attributes:
        fault: The fault's id.
        file: What is edited.
        old: This text, which stands there once,
        new: is replaced by this one.
        test: Fails then; one that the fault's row names.
    """

    fault: str
    file: str
    old: str
    new: str
    test: str


_COMMIT = "tests/test_fault_classes_commit.py::"
_LOCAL = "tests/test_fault_classes_local.py::"
_BLOB = "tests/test_fault_classes_blob.py::"

BREAKAGES = (
    Breakage(
        "BR-002",
        "src/millpond/commit/engine.py",
        "            self._fail(attempt, error)\n            return\n",
        "            for name, image in attempt.images.items():\n"
        "                self._stores[name].image = image\n"
        "            for name in attempt.marks:\n"
        "                self._stores[name].advance(attempt.marks[name], self.last, attempt.uploaded)\n"
        "            self._fail(attempt, error)\n            return\n",
        "tests/test_blob_job.py::test_a_failed_commit_is_no_base",
    ),
    Breakage(
        "BR-005",
        "src/millpond/records/ledger.py",
        "        found = self._reader.last_checkpoint()\n        return None if",
        "        try:\n            found = self._reader.last_checkpoint()\n"
        "        except MillpondError:\n            found = None\n        return None if",
        f"{_BLOB}test_a_record_that_cannot_be_read_for_a_while_is_waited_for_and_never_replaced",
    ),
    Breakage(
        "BR-006",
        "src/millpond/local/durable.py",
        "        os.link(temporary, path)\n",
        "        write_new(path, data[: len(data) // 2])\n        reached('local.file-linked')\n"
        "        path.write_bytes(data)\n",
        "tests/test_directory_checkpoints.py::test_a_kill_at_any_step_of_a_write_leaves_the_checkpoint_or_none",
    ),
    Breakage(
        "BR-007",
        "src/millpond/local/images.py",
        "        if not links_fail(error):\n",
        "        if links_fail(error):\n",
        "tests/test_local.py::test_a_clone_copies_where_links_fail",
    ),
    Breakage(
        "BR-010",
        "src/millpond/commit/engine.py",
        "            self._keeping.clean(attempt, checkpoint)\n",
        "            self._end(attempt)\n"
        "            self._task.uploads.submit(lambda: self._keeping.clean(attempt, checkpoint))\n",
        f"{_COMMIT}test_clean_up_that_is_slower_than_commits_queues_nothing",
    ),
    Breakage(
        "BR-015",
        "src/millpond/commit/engine.py",
        "            if not self._point.may_be_written(attempt):\n                self._abandon(attempt)\n",
        "",
        f"{_BLOB}test_a_commit_that_breaks_off_at_any_upload_leaves_no_object",
    ),
    Breakage(
        "BR-023",
        "src/millpond/checkpoint.py",
        "        if last is None or (now_millis, nanos) > (last.millis, last.nanos):\n",
        "        if True:\n",
        f"{_COMMIT}test_ids_of_a_lineage_grow_whatever_the_clock_does",
    ),
    Breakage(
        "BR-024",
        "src/millpond/stores/buffer.py",
        "            room = self._make_room(key, len(key) + len(value))\n",
        "            self._limit, limit = None, self._limit\n"
        "            room = self._make_room(key, len(key) + len(value))\n"
        "            self._limit = limit\n",
        "tests/test_buffer.py::test_record_limit_is_exact_and_changes_nothing",
    ),
    Breakage(
        "BR-029",
        "src/millpond/records/ledger.py",
        "            if found is None or not found.is_by(claim):\n                raise self._fenced(claim)\n",
        "",
        "tests/test_records.py::test_a_later_claim_refuses_every_earlier_writer",
    ),
    Breakage(
        "BR-030",
        "src/millpond/stores/memory.py",
        "        self._chunks = _applied(self._chunks, changes)\n",
        "        self._chunks = _applied(self._chunks, [each for each in changes if each[1] is not None])\n",
        f"{_LOCAL}test_deletes_among_records_are_kept_in_their_order",
    ),
    Breakage(
        "BR-042",
        "src/millpond/job.py",
        '    threads = Workers("close", min(len(closings), _CLOSERS))\n',
        '    threads = Workers("close", 1)\n',
        "tests/test_lifecycle.py::test_a_task_that_is_slow_to_close_holds_up_no_other",
    ),
    Breakage(
        "BR-052",
        "src/millpond/stores/buffer.py",
        "        self._open[key] = value\n        self._room = room\n",
        "        if self._open.get(key, value) is not None:\n            self._open[key] = value\n"
        "        self._room = room\n",
        "tests/test_buffer.py::test_delete_then_put_in_one_run_is_a_put",
    ),
    Breakage(
        "BR-053",
        "src/millpond/stores/expiry.py",
        "                if now < self._end_of(data):\n",
        "                if True:\n",
        "tests/test_fault_classes_stores.py::test_what_was_restored_expires_without_a_write",
    ),
    Breakage(
        "BR-064",
        "src/millpond/restore/stores.py",
        "                errors.append(error)\n",
        "                raise\n",
        "tests/test_restore_engine.py::test_the_next_backend_is_asked",
    ),
    Breakage(
        "BR-073",
        "src/millpond/records/ledger.py",
        "        return found is not None and found.is_by(claim)\n",
        "        return False\n",
        "tests/test_records.py::test_a_driver_that_repeated_its_own_request_is_not_fenced_by_it",
    ),
    Breakage(
        "BR-074",
        "src/millpond/commit/keeping.py",
        "*pins_answer(manager.pins(task)).values(), last.id}",
        "last.id}",
        "tests/test_restore_history.py::test_a_pin_outlives_its_record_and_its_data",
    ),
    Breakage(
        "BR-075",
        "src/millpond/commit/engine.py",
        "        except BaseException as error:  # noqa: BLE001 - whatever it was, the host has to hear of it\n"
        "            self._fail(attempt, error)\n            return\n",
        "        except OSError as error:\n            self._fail(attempt, error)\n            return\n",
        f"{_COMMIT}test_no_background_step_dies_unnoticed",
    ),
    Breakage(
        "BR-080",
        "src/millpond/stores/keyvalue.py",
        "        encoded, data = self._encode_key(key), self._encode_value(value)\n",
        "        try:\n            encoded, data = self._encode_key(key), self._encode_value(value)\n"
        "        except (TypeError, ValueError):\n            return\n",
        "tests/test_keyvalue.py::test_what_cannot_be_stored_changes_nothing",
    ),
    Breakage(
        "BR-087",
        "backends/s3/src/millpond_s3/bodies.py",
        "        if at != self._at:\n            self._go_to(at)\n",
        "        self._at = at\n",
        "backends/s3/tests/test_s3_store.py::test_a_body_that_cannot_go_back_is_opened_again",
    ),
    Breakage(
        "BR-093",
        "src/millpond/blob/probe.py",
        "    if sum(won) > 1 or held not in bodies or",
        "    if False and",
        "tests/test_blob_records.py::test_a_broken_promise_is_found_before_it_matters",
    ),
    Breakage(
        "BR-096",
        "src/millpond/job.py",
        "os.register_at_fork(after_in_child=_forked)\n",
        "",
        "tests/test_lifecycle.py::test_a_forked_child_cannot_use_a_task",
    ),
    Breakage(
        "BR-098",
        "src/millpond/stores/buffer.py",
        "                value = self._engine_get(key)\n",
        "                value = None if self._open else self._engine_get(key)\n",
        f"{_COMMIT}test_a_write_before_any_read_hides_nothing_that_was_restored",
    ),
    Breakage(
        "BR-041",
        "backends/changelog/src/millpond_changelog/kafka/reading.py",
        "        return max(position, int(known.offset))\n",
        "        return position\n",
        "backends/changelog/tests/test_kafka_log.py::test_the_position_says_when_the_end_is_reached",
    ),
    Breakage(
        "BR-008",
        "src/millpond/local/images.py",
        "            place = _link_or_copy if matches(file.name, immutable) else _copy\n",
        "            place = _link_or_copy\n",
        "tests/test_local.py::test_a_clone_links_what_never_changes_and_copies_the_rest",
    ),
    Breakage(
        "BR-009",
        "src/millpond/blob/garbage.py",
        "        if together is not None and len(group) > 1:\n",
        "        if together is not None and not group:\n",
        "tests/test_blob_garbage.py::test_ten_thousand_objects_go_in_batches",
    ),
    Breakage(
        "BR-014",
        "backends/s3/src/millpond_s3/parts.py",
        "            self.client.abort_multipart_upload(**self.settings.for_any(), Key=self.key, UploadId=id)\n",
        "            pass\n",
        "backends/s3/tests/test_s3_store.py::test_a_failed_upload_is_aborted",
    ),
    Breakage(
        "BR-044",
        "src/millpond/restore/stores.py",
        "            self.quarantine(store.store, store.image, error)\n",
        "",
        "tests/test_restore_engine.py::test_a_damaged_local_image_goes_to_quarantine",
    ),
    Breakage(
        "BR-058",
        "src/millpond/local/task.py",
        "        if (manifest.store, manifest.image) != (store, name):\n            raise StateCorruptError",
        "        if manifest.store != store:\n            raise StateCorruptError",
        "tests/test_local.py::test_a_manifest_of_another_image_is_refused",
    ),
    Breakage(
        "BR-061",
        "src/millpond/blob/backup.py",
        "        broken = not self._gone.isdisjoint(needed_by(published[1], manifest))\n",
        "        self._gone, broken = frozenset(), False\n",
        "tests/test_blob_job.py::test_objects_deleted_behind_our_back_are_sent_again",
    ),
    Breakage(
        "BR-067",
        "src/millpond/blob/backup.py",
        "self._superseded.due(now_s, grace_s, after)",
        "self._superseded.due(now_s, 0.0, after)",
        "tests/test_blob_job.py::test_superseded_objects_go_together_after_the_grace_period",
    ),
    Breakage(
        "BR-069",
        "src/millpond/blob/backup.py",
        "        if not self._swept and now_s - self._claimed_s >= grace_s:\n            self._sweep(needed, after)\n",
        "",
        "tests/test_blob_job.py::test_earlier_owners_leftovers_go_a_grace_period_after_the_claim",
    ),
    Breakage(
        "BR-070",
        "src/millpond/records/pins.py",
        "        with named(self.folder.where(escaped)):\n            record = decode_own(self.task, data)\n",
        "        with named(self.folder.where(escaped)):\n"
        "            try:\n"
        "                record = decode_own(self.task, data)\n"
        "            except Exception:\n"
        "                return None\n",
        "tests/test_records.py::test_a_damaged_pin_is_named",
    ),
    Breakage(
        "BR-072",
        "src/millpond/commit/engine.py",
        "        if not marks and self.last is not None and self._is_current(self.last, offsets):\n"
        "            return _done(self.last)\n",
        "",
        "tests/test_commit_engine.py::test_without_changes_nothing_is_written",
    ),
    Breakage(
        "BR-076",
        "src/millpond/local/images.py",
        "            place = _link_or_copy if matches(file.name, immutable) else _copy\n",
        "            place = _link_or_copy\n",
        "tests/test_local.py::test_a_clone_links_what_never_changes_and_copies_the_rest",
    ),
    Breakage(
        "BR-082",
        "src/millpond/local/durable.py",
        "        _fsync(path, os.O_RDONLY | os.O_DIRECTORY)\n",
        "        pass\n",
        "tests/test_directory_checkpoints.py::test_files_and_folders_are_on_stable_storage",
    ),
    Breakage(
        "BR-084",
        "src/millpond/local/images.py",
        "    _compare_names_and_sizes(image, manifest, {file.name: file.size for file in found})\n",
        "    listed = {file.name for file in manifest.files}\n"
        "    _compare_names_and_sizes(image, manifest, {f.name: f.size for f in found if f.name in listed})\n",
        "tests/test_fault_classes_local.py::test_a_stray_file_in_an_image_is_taken_for_nothing",
    ),
    Breakage(
        "BR-086",
        "backends/fsspec/src/millpond_fsspec/files.py",
        '            with temporary.open("xb") as file, whole(body) as stream:\n',
        '            temporary = path\n            with temporary.open("wb") as file, whole(body) as stream:\n',
        "backends/fsspec/tests/test_fsspec_stores.py::test_a_body_that_breaks_publishes_nothing",
    ),
    Breakage(
        "BR-089",
        "backends/s3/src/millpond_s3/client.py",
        '    calculate = "when_supported" if settings.checksums else "when_required"\n',
        '    calculate = "when_supported"\n',
        "backends/s3/tests/test_s3_store.py::test_checksums_and_signed_bodies_are_off_and_can_be_turned_on",
    ),
    Breakage(
        "BR-090",
        "backends/s3/src/millpond_s3/client.py",
        '            retries={"mode": "standard", "total_max_attempts": settings.attempts},\n',
        '            retries={"mode": "standard", "total_max_attempts": 1},\n',
        "backends/s3/tests/test_s3_errors.py::test_throttling_passes_within_the_attempts",
    ),
    Breakage(
        "BR-092",
        "backends/s3/src/millpond_s3/client.py",
        "        with self._lock:\n            self._client = None\n",
        "        return\n",
        "backends/s3/tests/test_s3_errors.py::test_expired_credentials_are_looked_up_anew",
    ),
    Breakage(
        "BR-094",
        "src/millpond/local/names.py",
        '    if character in _PLAIN or (character == "." and not edge):\n',
        '    if character in _PLAIN or character in ". ":\n',
        "tests/test_local.py::test_a_name_comes_back",
    ),
)
