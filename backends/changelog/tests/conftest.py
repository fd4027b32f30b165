"""Logs of both kinds, and a real broker."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "tests"), str(Path(__file__).resolve().parent)]

from services.kafka_fixtures import kafka_address, own_kafka  # noqa: E402 - it lies beside the core's tests

__all__ = ["kafka_address", "own_kafka"]
