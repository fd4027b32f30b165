"""Faults of records, commits and the coordinator, each with the edit that brings it in."""

from __future__ import annotations

from breakage import Breakage

_COMMIT = "tests/test_fault_classes_commit.py::"
_BLOB = "tests/test_fault_classes_blob.py::"
_SOURCE = "backends/changelog/src/millpond_changelog/"
_TESTS = "backends/changelog/tests/"
_ROCKSDB = "backends/rocksdb/src/millpond_rocksdb/"
_ROCKSDB_TESTS = "backends/rocksdb/tests/"

RECORDS = (
    Breakage(
        "BR-006",
        "src/millpond/local/durable.py",
        "        os.link(temporary, path)\n",
        "        write_new(path, data[: len(data) // 2])\n"
        "        reached('local.file-linked')\n"
        "        path.write_bytes(data)\n",
        "tests/test_directory_checkpoints.py::test_a_kill_at_any_step_of_a_write_leaves_the_checkpoint_or_none",
    ),
    Breakage(
        "BR-017",
        f"{_SOURCE}checkpoints/view.py",
        "    return read.index(new.version) <= read.index(old.version) or age > max_age\n",
        "    return read.index(new.version) <= read.index(old.version)\n",
        f"{_TESTS}test_checkpoints_settings.py::test_a_lower_version_counts_if_it_is_newer_by_more_than_the_age",
    ),
    Breakage(
        "BR-023",
        "src/millpond/checkpoint.py",
        "        if last is None or (now_millis, nanos) > (last.millis, last.nanos):\n",
        "        if True:\n",
        f"{_COMMIT}test_ids_of_a_lineage_grow_whatever_the_clock_does",
    ),
    Breakage(
        "BR-029",
        "src/millpond/records/ledger.py",
        "            if found is None or not found.is_by(claim):\n                raise self._fenced(claim)\n",
        "",
        "tests/test_records.py::test_a_later_claim_refuses_every_earlier_writer",
    ),
    Breakage(
        "BR-068",
        "src/millpond/records/ledger.py",
        "        if last.number != self._reader.newest_number():\n            return False\n",
        "",
        "tests/test_records.py::test_a_zombie_whose_numbers_were_collected_is_refused",
    ),
    Breakage(
        "BR-070",
        "src/millpond/blob/backup.py",
        "        after = max((markers[marker] for marker in read.lost), default=None)\n",
        "        after = None\n",
        "tests/test_blob_job.py::test_a_manifest_that_cannot_be_read_keeps_what_its_checkpoint_may_need",
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
        "BR-088",
        "src/millpond/blob/checkpoints.py",
        "    if can.conditional_put and can.fresh_listing:\n",
        "    if can.conditional_put:\n",
        "tests/test_blob_records.py::test_a_store_that_cannot_keep_records_is_refused",
    ),
    Breakage(
        "BR-093",
        "src/millpond/blob/probe.py",
        "    if sum(won) > 1 or held not in bodies or",
        "    if False and",
        "tests/test_blob_records.py::test_a_broken_promise_is_found_before_it_matters",
    ),
    Breakage(
        "BR-002",
        "src/millpond/commit/engine.py",
        "            self._fail(attempt, error)\n            return\n",
        "            for name, image in attempt.images.items():\n"
        "                self._stores[name].image = image\n"
        "            for name in attempt.marks:\n"
        "                self._stores[name].advance(attempt.marks[name], self.last, attempt.uploaded)\n"
        "            self._fail(attempt, error)\n"
        "            return\n",
        "tests/test_blob_job.py::test_a_failed_commit_is_no_base",
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
        "BR-012",
        "src/millpond/commit/engine.py",
        "        in_flight = self._wanted_in_flight()\n        now = self._task.now()\n",
        "        if self._in_flight is not None and self._in_flight.is_undone:\n"
        "            with suppress(CommitTimeoutError):\n"
        "                self._await_idle(time.monotonic() + 6.0)\n"
        "        in_flight = self._wanted_in_flight()\n"
        "        now = self._task.now()\n",
        f"{_COMMIT}test_undoing_a_commit_does_not_hold_up_the_processing_thread",
    ),
    Breakage(
        "BR-015",
        "src/millpond/commit/engine.py",
        "            if not self._point.may_be_written(attempt):\n                self._abandon(attempt)\n",
        "",
        f"{_BLOB}test_a_commit_that_breaks_off_at_any_upload_leaves_no_object",
    ),
    Breakage(
        "BR-046",
        "src/millpond/commit/attempt.py",
        "        if now > self.deadline:\n            self.give_up_late()\n",
        "",
        "tests/test_commit_timing.py::test_a_commit_gives_itself_up_without_being_asked",
    ),
    Breakage(
        "BR-056",
        "src/millpond/commit/engine.py",
        "                self._task.apply_lane.submit(lambda: self._stage_images(attempt))\n",
        "                self._task.apply_lane.submit(lambda: self._stage_images(attempt))\n"
        "                wait([attempt.future])\n",
        "tests/test_lifecycle.py::test_a_commit_can_be_awaited",
    ),
    Breakage(
        "BR-062",
        "src/millpond/commit/engine.py",
        "            idle = self._idle.wait_for(lambda: self._in_flight is None, timeout_s)\n",
        "            idle = True\n",
        "tests/test_commit_timing.py::test_close_keeps_its_deadline_and_gives_the_commit_up",
    ),
    Breakage(
        "BR-075",
        "src/millpond/commit/engine.py",
        "        except BaseException as error:  # noqa: BLE001 - whatever it was, the host has to hear of it\n"
        "            self._fail(attempt, error)\n"
        "            return\n",
        "        except OSError as error:\n            self._fail(attempt, error)\n            return\n",
        f"{_COMMIT}test_no_background_step_dies_unnoticed",
    ),
    Breakage(
        "BR-077",
        "src/millpond/coordinator/machine.py",
        "        if attempt is None or attempt.id != report.attempt or report.transaction != self.running:\n",
        "        if attempt is None or report.transaction != self.running:\n",
        "tests/test_coordinator_bad_days.py::test_a_save_after_its_checkpoint_was_abandoned_changes_nothing",
    ),
    Breakage(
        "BR-078",
        f"{_ROCKSDB}transfer.py",
        "    if digester.text() != piece.digest:\n",
        "    if not digester.text():\n",
        f"{_ROCKSDB_TESTS}test_rocksdb_local.py::test_a_source_that_is_not_what_its_manifest_says_is_no_backup",
    ),
    Breakage(
        "BR-057",
        "src/millpond/coordinator/machine.py",
        '            some = ", ".join(sorted(attempt.waiting)[:5])\n',
        "            self._complete(attempt)\n"
        "            return\n"
        '            some = ", ".join(sorted(attempt.waiting)[:5])\n',
        "tests/test_coordinator_bad_days.py::test_one_missing_state_of_many_makes_no_smaller_checkpoint",
    ),
)
