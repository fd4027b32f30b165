"""Uploads one large object and says when it begins; to be killed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from millpond.blob.store import FileBody
from millpond_s3.settings import S3Settings
from millpond_s3.store import S3Store


def main() -> None:
    given, path = json.loads(sys.argv[1]), Path(sys.argv[2])
    store = S3Store(S3Settings(**given), 1)
    store.put("large", FileBody(path, path.stat().st_size))


if __name__ == "__main__":
    main()
