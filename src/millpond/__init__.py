"""Durable, exactly restorable state for stream processors in Python."""
