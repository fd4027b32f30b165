"""
A large object in parts: all of them, in parallel, or nothing.

Each part is a request of its own, which the SDK repeats alone. An upload that fails is aborted; one whose process died
is listed by the server until somebody does.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attrs import frozen

from millpond.blob.store import Body
from millpond.lanes import TransferPool
from millpond_s3.bodies import Window
from millpond_s3.driver_errors import code_of, expect
from millpond_s3.settings import MIB, S3Settings

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

MOST_PARTS = 10_000
_TOKEN = "millpond-upload"  # noqa: S105 - no secret: the name under which an object says which upload made it


@frozen
class Part:
    """One part: its number, from 1, and which bytes it is."""

    number: int
    start: int
    size: int


def cut(size: int, part_size: int) -> Iterator[Part]:
    """Cut *size* bytes into parts of *part_size*, or of more where they would be too many; the last may be smaller."""
    least = -(-size // MOST_PARTS)
    step = max(part_size, -(-least // MIB) * MIB)
    for number, start in enumerate(range(0, size, step), 1):
        yield Part(number, start, min(step, size - start))


@frozen
class Upload:
    """One object on its way. The SDK's errors come through, but for those that say that it is there."""

    client: Any
    settings: S3Settings
    pool: TransferPool
    key: str
    body: Body

    def run(self, *, if_absent: bool) -> bool:
        """Upload the body; False if *if_absent* and the key exists."""
        token = secrets.token_hex(16)
        new = self.settings.for_new()
        begun = self.client.create_multipart_upload(**new, Key=self.key, Metadata={_TOKEN: token})
        expect(begun, "UploadId", self.key)
        id = begun["UploadId"]
        try:
            parts = self.pool.map(lambda part: self._send(id, part), cut(self.body.size, self.settings.part_size))
            done = self._complete(id, parts, token, if_absent)
        except BaseException as error:
            self._give_up(id, error)
            raise
        if not done:
            self._give_up(id)
        return done

    def _send(self, id: str, part: Part) -> dict[str, object]:
        given = self.settings.for_content()
        with Window(self.body, part.start, part.size) as window:
            told = self.client.upload_part(
                **given, Key=self.key, UploadId=id, PartNumber=part.number, Body=window, ContentLength=part.size
            )
        expect(told, "ETag", self.key)
        sums = {name: told[name] for name in told if name.startswith("Checksum") and name != "ChecksumType"}
        return {"PartNumber": part.number, "ETag": told["ETag"], **sums}

    def _complete(self, id: str, parts: list[dict[str, object]], token: str, if_absent: bool) -> bool:
        from botocore.exceptions import ClientError

        given: dict[str, object] = {**self.settings.for_content(), "Key": self.key, "UploadId": id}
        if if_absent:
            given["IfNoneMatch"] = "*"
        try:
            told = self.client.complete_multipart_upload(**given, MultipartUpload={"Parts": parts})
            expect(told, "ETag", self.key)
        except ClientError as error:
            return self._was_done(error, token, if_absent)
        return True

    def _was_done(self, error: ClientError, token: str, if_absent: bool) -> bool:
        """Tell a key that exists from an answer of our own that was lost; raise *error* if it is neither."""
        from botocore.exceptions import ClientError

        code = code_of(error)
        if code not in ("PreconditionFailed", "NoSuchUpload"):
            raise error
        try:
            found = self.client.head_object(**self.settings.for_content(), Key=self.key)
        except ClientError:
            raise error from None
        if found.get("Metadata", {}).get(_TOKEN) == token:
            return True
        if code == "PreconditionFailed" and if_absent:
            return False
        raise error

    def _give_up(self, id: str, reason: BaseException | None = None) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self.client.abort_multipart_upload(**self.settings.for_any(), Key=self.key, UploadId=id)
        except (BotoCoreError, ClientError) as error:
            if reason is not None:
                reason.add_note(f"its parts are left for garbage collection: the upload could not be aborted: {error}")
