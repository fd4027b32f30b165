"""What every object-store backend shares, above one small role: a driver is only a :class:`~millpond.blob.store.BlobStore`."""
