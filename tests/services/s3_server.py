"""What is known of a running S3 server: where it is and who may ask."""

from __future__ import annotations

from attrs import frozen


@frozen
class S3Server:
    """
    A server that listens on this machine.

    Attributes:
        endpoint: Its address.
        access_key: An account that may do everything.
        secret_key: Its secret.
        name: Which server it is.
    """

    endpoint: str
    access_key: str
    secret_key: str
    name: str

    @property
    def settings(self) -> dict[str, str]:
        """Give what a section of a job's configuration says to reach it, but for the bucket."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Give the credentials as the SDK's own variables."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
