"""Faults of stores and RocksDB, each with the edit that brings it in."""

from __future__ import annotations

from breakage import Breakage

_COMMIT = "tests/test_fault_classes_commit.py::"
_LOCAL = "tests/test_fault_classes_local.py::"
_BLOB = "tests/test_fault_classes_blob.py::"
_ROCKSDB = "backends/rocksdb/src/millpond_rocksdb/"
_ROCKSDB_TESTS = "backends/rocksdb/tests/"

STORES = (
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
        "BR-030",
        "src/millpond/stores/memory.py",
        "        self._chunks = _applied(self._chunks, changes)\n",
        "        self._chunks = _applied(self._chunks, [each for each in changes if each[1] is not None])\n",
        f"{_LOCAL}test_deletes_among_records_are_kept_in_their_order",
    ),
    Breakage(
        "BR-035",
        "src/millpond/stores/budget.py",
        "            if self._held + size > self.limit:\n                return False\n",
        "",
        "tests/test_buffer.py::test_budget_bounds_the_stores_together",
    ),
    Breakage(
        "BR-052",
        "src/millpond/stores/buffer.py",
        "        self._open[key] = value\n        self._room = room\n",
        "        if self._open.get(key, value) is not None:\n"
        "            self._open[key] = value\n"
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
        "BR-080",
        "src/millpond/stores/keyvalue.py",
        "        encoded, data = self._encode_key(key), self._encode_value(value)\n",
        "        try:\n"
        "            encoded, data = self._encode_key(key), self._encode_value(value)\n"
        "        except (TypeError, ValueError):\n"
        "            return\n",
        "tests/test_keyvalue.py::test_what_cannot_be_stored_changes_nothing",
    ),
    Breakage(
        "BR-081",
        "src/millpond/blob/chain.py",
        "        if key != last:\n            yield key, value\n        last = key\n\n\ndef _ranked",
        "        if key != last and value is not None:\n"
        "            yield key, value\n"
        "        last = key\n"
        "\n"
        "\n"
        "def _ranked",
        f"{_BLOB}test_a_retired_key_comes_back_by_no_retention",
    ),
    Breakage(
        "BR-098",
        "src/millpond/stores/buffer.py",
        "                value = self._engine_get(key)\n",
        "                value = None if self._open else self._engine_get(key)\n",
        f"{_COMMIT}test_a_write_before_any_read_hides_nothing_that_was_restored",
    ),
    Breakage(
        "BR-099",
        "src/millpond/stores/memory.py",
        "                self._check()\n                yield item\n        self._check()\n",
        "                yield item\n",
        f"{_COMMIT}test_a_scan_that_outlived_its_task_spoils_no_later_one",
    ),
    Breakage(
        "BR-034",
        "src/millpond/opening/order.py",
        "            engine.quarantine(damage.image.store, damage.image.name, damage.error)\n",
        "",
        "tests/test_restore_engine.py::test_an_image_that_its_engine_cannot_open_goes_to_quarantine",
    ),
    Breakage(
        "BR-038",  # Python frees what nobody holds, and so it is held here, as a native library would hold it
        f"{_ROCKSDB}engine.py",
        "            _close(database, self._directory)\n",
        '            type(self).kept = [*getattr(type(self), "kept", ()), database]\n',
        f"{_LOCAL}test_opening_and_closing_for_ever_holds_nothing",
    ),
    Breakage(
        "BR-039",
        f"{_ROCKSDB}engine.py",
        "        for scan in scans:\n            scan.close()\n",
        "",
        f"{_ROCKSDB_TESTS}test_rocksdb_engine.py::test_close_ends_open_scans_and_lets_the_directory_be_opened_again",
    ),
    Breakage(
        "BR-044",
        "src/millpond/restore/stores.py",
        "            self.quarantine(store.store, store.image, error)\n",
        "",
        "tests/test_restore_engine.py::test_a_damaged_local_image_goes_to_quarantine",
    ),
    Breakage(
        "BR-060",
        "src/millpond/local/images.py",
        "    earlier = known.get(file.identity)\n    if earlier is None or earlier.size != file.size:\n",
        "    alike = [each for each in known.values() if (each.name, each.size) == (file.name, file.size)]\n"
        "    earlier = alike[0] if alike else None\n"
        "    if earlier is None:\n",
        "tests/test_blob_job.py::test_a_file_name_with_other_content_is_another_file",
    ),
    Breakage(
        "BR-066",
        f"{_ROCKSDB}database.py",
        '        elif name == "bloom_bits":\n',
        '        elif name == "max_open_files":\n'
        "            options.set_max_open_files(-1)\n"
        '        elif name == "bloom_bits":\n',
        f"{_LOCAL}test_descriptors_have_a_bound_however_many_tables_there_are",
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
        "BR-083",
        f"{_ROCKSDB}local.py",
        "            shelf.remove_staging(name)\n            shelf.remove(name)\n",
        "            shelf.remove(name)\n",
        f"{_ROCKSDB_TESTS}test_rocksdb_full_disk.py::test_an_upload_on_a_full_disk_leaves_no_image",
    ),
    Breakage(
        "BR-085",
        f"{_ROCKSDB}database.py",
        'TRANSIENT = ("LOCK", "LOG",',
        'TRANSIENT = ("LOG",',
        f"{_ROCKSDB_TESTS}test_rocksdb_engine.py::test_a_lock_file_that_nobody_holds_is_nothing",
    ),
)
