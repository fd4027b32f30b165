"""Faults of object stores, each with the edit that brings it in."""

from __future__ import annotations

from breakage import Breakage

_COMMIT = "tests/test_fault_classes_commit.py::"
_BLOB = "tests/test_fault_classes_blob.py::"
_S3 = "backends/s3/src/millpond_s3/"
_S3_TESTS = "backends/s3/tests/"

OBJECTS = (
    Breakage(
        "BR-001",
        "src/millpond/blob/retention.py",
        "        and name.epoch < epoch\n",
        "",
        "tests/test_blob_job.py::test_a_replaced_owners_sweep_does_not_reach_its_successors_objects",
    ),
    Breakage(
        "BR-003",
        "src/millpond/local/images.py",
        "    earlier = known.get(file.identity)\n    if earlier is None or earlier.size != file.size:\n",
        "    alike = [each for each in known.values() if (each.name, each.size) == (file.name, file.size)]\n"
        "    earlier = alike[0] if alike else None\n"
        "    if earlier is None:\n",
        f"{_BLOB}test_a_name_that_a_dead_attempt_used_has_the_content_of_the_living_one",
    ),
    Breakage(
        "BR-004",
        "src/millpond/blob/backup.py",
        '            self._remove(names, "their commit was given up")\n',
        "            self._superseded.forget(names)\n",
        f"{_BLOB}test_a_commit_that_takes_too_long_leaves_no_object",
    ),
    Breakage(
        "BR-009",
        "src/millpond/blob/garbage.py",
        "        if together is not None and len(group) > 1:\n",
        "        if together is not None and not group:\n",
        "tests/test_blob_garbage.py::test_ten_thousand_objects_go_in_batches",
    ),
    Breakage(
        "BR-011",
        "src/millpond/blob/backup.py",
        "            self._store.delete([self._prefix + name for name in batch])\n"
        "            self._superseded.forget(batch)\n",
        "            self._superseded.forget(batch)\n"
        "            self._store.delete([self._prefix + name for name in batch])\n",
        "tests/test_blob_job.py::test_a_failed_cleanup_is_computed_anew",
    ),
    Breakage(
        "BR-013",
        "src/millpond/blob/backup.py",
        "        encoded = [blob_manifest.encode(manifest) for manifest in manifests]\n",
        "        from attrs import evolve\n"
        "\n"
        '        place = {"place": str(self._task.directory)}\n'
        "        encoded = [blob_manifest.encode(evolve(manifest, properties=place)) for manifest in manifests]\n",
        f"{_BLOB}test_a_bucket_can_be_moved",
    ),
    Breakage(
        "BR-014",
        f"{_S3}parts.py",
        "            self.client.abort_multipart_upload(**self.settings.for_any(), Key=self.key, UploadId=id)\n",
        "            pass\n",
        f"{_S3_TESTS}test_s3_store.py::test_a_failed_upload_is_aborted",
    ),
    Breakage(
        "BR-025",
        "src/millpond/blob/download.py",
        "        if digest != wanted.digest:\n",
        "        if not digest:\n",
        "tests/test_blob_job.py::test_a_flipped_bit_in_any_object_is_found",
    ),
    Breakage(
        "BR-061",
        "src/millpond/blob/backup.py",
        "        broken = not self._gone.isdisjoint(needed_by(published[1], manifest))\n",
        "        self._gone, broken = frozenset(), False\n",
        "tests/test_blob_job.py::test_objects_deleted_behind_our_back_are_sent_again",
    ),
    Breakage(
        "BR-065",
        "src/millpond/blob/upload.py",
        "    held = {} if base.manifest is None else reusable(base.manifest, base.unfit)\n",
        "    held: dict[tuple[str, int], StoredFile] = {}\n",
        "tests/test_blob_job.py::test_only_new_files_are_sent_again",
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
        "BR-072",
        "src/millpond/commit/engine.py",
        "        if not marks and self.last is not None and self._is_current(self.last, offsets):\n"
        "            return _done(self.last)\n",
        "",
        "tests/test_commit_engine.py::test_without_changes_nothing_is_written",
    ),
    Breakage(
        "BR-086",
        "backends/fsspec/src/millpond_fsspec/files.py",
        '            with temporary.open("xb") as file, whole(body) as stream:\n',
        '            temporary = path\n            with temporary.open("wb") as file, whole(body) as stream:\n',
        "backends/fsspec/tests/test_fsspec_stores.py::test_a_body_that_breaks_publishes_nothing",
    ),
    Breakage(
        "BR-087",
        f"{_S3}bodies.py",
        "        if at != self._at:\n            self._go_to(at)\n",
        "        self._at = at\n",
        f"{_S3_TESTS}test_s3_store.py::test_a_body_that_cannot_go_back_is_opened_again",
    ),
    Breakage(
        "BR-089",
        f"{_S3}client.py",
        '    calculate = "when_supported" if settings.checksums else "when_required"\n',
        '    calculate = "when_supported"\n',
        f"{_S3_TESTS}test_s3_store.py::test_checksums_and_signed_bodies_are_off_and_can_be_turned_on",
    ),
    Breakage(
        "BR-090",
        f"{_S3}client.py",
        '            retries={"mode": "standard", "total_max_attempts": settings.attempts},\n',
        '            retries={"mode": "standard", "total_max_attempts": 1},\n',
        f"{_S3_TESTS}test_s3_errors.py::test_throttling_passes_within_the_attempts",
    ),
    Breakage(
        "BR-091",
        "src/millpond/blob/backup.py",
        "        return self._gone | worn(sizes, live_bytes(known.values()))\n",
        "        other = {name for name, size in sizes.items() if size >= self._settings.alone}\n"
        "        return self._gone | worn(sizes, live_bytes(known.values())) | other\n",
        f"{_BLOB}test_other_sizes_of_objects_send_nothing_twice",
    ),
    Breakage(
        "BR-092",
        f"{_S3}client.py",
        "        with self._lock:\n            self._client = None\n",
        "        return\n",
        f"{_S3_TESTS}test_s3_errors.py::test_expired_credentials_are_looked_up_anew",
    ),
    Breakage(
        "BR-094",
        "src/millpond/local/names.py",
        '    if character in _PLAIN or (character == "." and not edge):\n',
        '    if character in _PLAIN or character in ". ":\n',
        "tests/test_local.py::test_a_name_comes_back",
    ),
    Breakage(
        "BR-095",
        "src/millpond/job.py",
        '            "upload": self._parts.upload_workers,\n',
        "",
        f"{_COMMIT}test_jobs_that_come_and_go_leave_no_thread_and_no_descriptor",
    ),
    Breakage(
        "BR-096",
        "src/millpond/job.py",
        "os.register_at_fork(after_in_child=_forked)\n",
        "",
        "tests/test_lifecycle.py::test_a_forked_child_cannot_use_a_task",
    ),
)
