"""Creates keys on command, one a line of standard input, and says for each whether it won."""

from __future__ import annotations

import json
import sys

from millpond.blob.store import BytesBody
from millpond_s3.settings import S3Settings
from millpond_s3.store import S3Store


def main() -> None:
    given = json.loads(sys.argv[1])
    body = sys.argv[2].encode() * int(sys.argv[3])
    store = S3Store(S3Settings(**given), 2)
    store.now()  # the client is made before the race
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        won = store.put(line.strip(), BytesBody(body), if_absent=True)
        sys.stdout.write(f"{int(won)}\n")
        sys.stdout.flush()
    store.close()


if __name__ == "__main__":
    main()
