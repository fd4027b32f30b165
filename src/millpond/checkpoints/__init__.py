"""Checkpoint managers that need no driver."""
