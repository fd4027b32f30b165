"""Faults of changelogs, each with the edit that brings it in."""

from __future__ import annotations

from breakage import Breakage

_SOURCE = "backends/changelog/src/millpond_changelog/"
_BAD_DAYS = "backends/changelog/tests/test_changelog_bad_days.py::"
_TESTS = "backends/changelog/tests/"

LOGS = (
    Breakage(
        "BR-028",
        f"{_SOURCE}source.py",
        " or local.stop > marker.stop or local.stop < facts.extent.start:\n",
        " or local.stop > marker.stop:\n",
        f"{_BAD_DAYS}test_a_local_image_older_than_deletions_are_kept_is_not_gone_on_with",
    ),
    Breakage(
        "BR-041",
        f"{_SOURCE}kafka/reading.py",
        "        return max(position, int(known.offset))\n",
        "        return position\n",
        f"{_TESTS}test_kafka_log.py::test_the_position_says_when_the_end_is_reached",
    ),
    Breakage(
        "BR-045",
        f"{_SOURCE}kafka/appending.py",
        "        if any(len(reports) > (None in reports) for reports in self._reports.values()):\n",
        "        if not self:\n",
        f"{_TESTS}test_kafka_log.py::test_without_transactions_a_record_that_a_broker_refuses_fails_its_append",
    ),
    Breakage(
        "BR-047",
        f"{_SOURCE}headers.py",
        "    if match[1] != _VERSION:\n",
        "    if match[1] != _VERSION:\n        return None\n    if match[1] != _VERSION:\n",
        f"{_BAD_DAYS}test_headers_of_a_newer_release_are_refused",
    ),
    Breakage(
        "BR-048",
        f"{_SOURCE}source.py",
        "        return cls(log, marker, facts, start, _endangered",
        "        return cls(log, marker, facts, start + 1, _endangered",
        f"{_BAD_DAYS}test_no_record_is_left_out_at_either_end",
    ),
    Breakage(
        "BR-049",
        f"{_SOURCE}embedded/reading.py",
        "    if frame.kind == KEPT:\n        return frame.append.number + 1\n",
        "",
        f"{_TESTS}test_embedded_log.py::test_a_reading_may_begin_in_any_hole_that_compaction_left",
    ),
    Breakage(
        "BR-050",
        f"{_SOURCE}source.py",
        "        if stamp is None or stamp.id != origin.id:\n",
        "        if stamp is None:\n",
        f"{_BAD_DAYS}test_offsets_that_were_given_twice_are_noticed",
    ),
    Breakage(
        "BR-051",
        f"{_SOURCE}embedded/log.py",
        "        if start < extent.start:\n"
        '            raise StateNotFoundError(f"offset {start} is no longer in {where}")\n',
        "        start = max(start, extent.start)\n",
        f"{_TESTS}test_embedded_log.py::test_retention_removes_segments_and_readers_are_told",
    ),
    Breakage(
        "BR-059",
        f"{_SOURCE}embedded/owners.py",
        "        if known is not Fate.OPEN or is_held(self.live(append.epoch)):\n",
        "        if known is not Fate.OPEN or self.live(append.epoch).exists():\n",
        f"{_TESTS}test_embedded_log.py::test_a_dead_owner_blocks_nobody",
    ),
    Breakage(
        "BR-097",
        f"{_SOURCE}kafka/appending.py",
        "            elif time.monotonic() - moved > self._seat.timeout_s:\n",
        "            elif moved < 0:\n",
        f"{_TESTS}test_kafka_log.py::test_records_that_nobody_acknowledges_are_not_waited_for_beyond_the_time",
    ),
)
