"""Faults of restores and the local disk, each with the edit that brings it in."""

from __future__ import annotations

from breakage import Breakage

_LOCAL = "tests/test_fault_classes_local.py::"
_BLOB = "tests/test_fault_classes_blob.py::"
_ROCKSDB = "backends/rocksdb/src/millpond_rocksdb/"
_ROCKSDB_TESTS = "backends/rocksdb/tests/"

RESTORE = (
    Breakage(
        "BR-005",
        "src/millpond/records/ledger.py",
        "        found = self._reader.last_checkpoint()\n        return None if",
        "        try:\n"
        "            found = self._reader.last_checkpoint()\n"
        "        except MillpondError:\n"
        "            found = None\n"
        "        return None if",
        f"{_BLOB}test_a_record_that_cannot_be_read_for_a_while_is_waited_for_and_never_replaced",
    ),
    Breakage(
        "BR-018",
        "src/millpond/opening/parts.py",
        "        pending = wait(working, _left(deadline)).not_done\n",
        "        pending: set[Future[Any]] = set()\n",
        "tests/test_restore_managers.py::test_a_restore_that_hangs_ends_in_time",
    ),
    Breakage(
        "BR-019",
        f"{_ROCKSDB}local.py",
        "        self._images = checkpoint.images\n",
        "        self._images = checkpoint.images\n"
        "        for store, marker in checkpoint.markers.get(self._task.backend, {}).items():\n"
        "            read_manifest(Shelf.of(self._root, store).path / marker)\n",
        f"{_LOCAL}test_a_removed_stores_missing_data_keeps_nobody_from_starting",
    ),
    Breakage(
        "BR-026",
        "src/millpond/restore/stores.py",
        "        source.manager.restore(target)\n    except Exception:\n",
        "        source.manager.restore(target)\n    except TransientError:\n        return\n    except Exception:\n",
        "tests/test_restore_managers.py::test_half_a_restore_leaves_nothing_behind",
    ),
    Breakage(
        "BR-036",
        "src/millpond/restore/stores.py",
        "        self._records += records\n",
        "        self._records += records > 0\n",
        f"{_LOCAL}test_progress_counts_records_and_not_batches",
    ),
    Breakage(
        "BR-043",
        "src/millpond/progress/bar.py",
        '    total = f" of {size_text(pace.total_size)}" if size and pace.total_size is not None else ""\n',
        '    total = f" of {size_text(-1 if pace.total_size is None else pace.total_size)}"\n',
        "tests/test_progress.py::test_progress_shows_no_number_for_what_nobody_knows",
    ),
    Breakage(
        "BR-054",
        "src/millpond/restore/stores.py",
        "        except StateNotFoundError:\n            if not self._task.store(store.store).wants.ephemeral:\n",
        "        except (StateNotFoundError, TransientError) as error:\n"
        "            if isinstance(error, StateNotFoundError) and not self._task.store(store.store).wants.ephemeral:\n",
        "tests/test_blob_job.py::test_a_store_that_does_not_answer_never_gives_an_empty_store",
    ),
    Breakage(
        "BR-058",
        "src/millpond/local/task.py",
        "        if (manifest.store, manifest.image) != (store, name):\n            raise StateCorruptError",
        "        if manifest.store != store:\n            raise StateCorruptError",
        "tests/test_local.py::test_a_manifest_of_another_image_is_refused",
    ),
    Breakage(
        "BR-064",
        "src/millpond/restore/stores.py",
        "                errors.append(error)\n",
        "                raise\n",
        "tests/test_restore_engine.py::test_the_next_backend_is_asked",
    ),
    Breakage(
        "BR-071",
        "src/millpond/restore/engine.py",
        "        if damaged is None or not self._policy.older_on_damage or not all(",
        "        if damaged is not None or not all(",
        "tests/test_restore_history.py::test_an_older_checkpoint_takes_everything_back_together",
    ),
    Breakage(
        "BR-079",
        "src/millpond/records/ledger.py",
        "        if newest.number == claim.epoch:\n            self._refuse_unseen(claim, after)\n",
        "",
        "tests/test_records.py::test_a_writer_that_has_not_read_the_last_checkpoint_is_refused",
    ),
    Breakage(
        "BR-007",
        "src/millpond/local/images.py",
        "        if not links_fail(error):\n",
        "        if links_fail(error):\n",
        "tests/test_local.py::test_a_clone_copies_where_links_fail",
    ),
    Breakage(
        "BR-008",
        "src/millpond/local/images.py",
        "            place = _link_or_copy if matches(file.name, immutable) else _copy\n",
        "            place = _link_or_copy\n",
        "tests/test_local.py::test_a_clone_links_what_never_changes_and_copies_the_rest",
    ),
    Breakage(
        "BR-020",
        "src/millpond/local/task.py",
        "        try:\n            shutil.rmtree(path)\n",
        "        try:\n"
        '            for each in path.rglob("*"):\n'
        "                each.chmod(0o500)\n"
        "            shutil.rmtree(path)\n",
        "tests/test_local.py::test_dropped_images_are_gone_and_their_links_unchanged",
    ),
    Breakage(
        "BR-021",
        f"{_ROCKSDB}bulk.py",
        "    options.set_move_files(True)\n",
        "    options.set_move_files(True)\n    options.set_allow_global_seqno(False)\n",
        f"{_ROCKSDB_TESTS}test_rocksdb_load.py::test_load_adds_to_what_is_there",
    ),
    Breakage(
        "BR-027",
        "src/millpond/restore/plan.py",
        "    return StorePlan(store.name, image if image in images else None, sources)\n",
        "    return StorePlan(store.name, max(images, default=None), sources)\n",
        f"{_LOCAL}test_what_was_flushed_and_not_committed_is_gone_after_a_crash",
    ),
    Breakage(
        "BR-031",
        "src/millpond/local/task.py",
        "        owner = OwnerLock(root, timeout_s)\n"
        "        try:\n"
        "            directory = cls(root, owner)\n"
        "            directory._sweep()\n",
        "        cls(root, None)._sweep()\n"
        "        owner = OwnerLock(root, timeout_s)\n"
        "        try:\n"
        "            directory = cls(root, owner)\n",
        "tests/test_local.py::test_a_refused_owner_removes_nothing",
    ),
    Breakage(
        "BR-033",
        "src/millpond/config/checks.py",
        "    if draft.state_dir_given:\n        return\n",
        "    if draft.state_dir:\n        return\n",
        "tests/test_config_checks.py::test_the_default_state_folder_is_never_in_temp",
    ),
    Breakage(
        "BR-042",
        "src/millpond/job.py",
        '    threads = Workers("close", min(len(closings), _CLOSERS))\n',
        '    threads = Workers("close", 1)\n',
        "tests/test_lifecycle.py::test_a_task_that_is_slow_to_close_holds_up_no_other",
    ),
    Breakage(
        "BR-084",
        "src/millpond/local/images.py",
        "    _compare_names_and_sizes(image, manifest, {file.name: file.size for file in found})\n",
        "    listed = {file.name for file in manifest.files}\n"
        "    _compare_names_and_sizes(image, manifest, {f.name: f.size for f in found if f.name in listed})\n",
        f"{_LOCAL}test_a_stray_file_in_an_image_is_taken_for_nothing",
    ),
    Breakage(
        "BR-100",
        "src/millpond/restore/live.py",
        "        clone_image(image.path, directory, immutable=engine.immutable, transient=engine.transient)\n"
        "        return engine.open(directory, spec)\n",
        "        return engine.open(image.path, spec)\n",
        f"{_LOCAL}test_whoever_restores_leaves_the_source_as_it_was",
    ),
)
