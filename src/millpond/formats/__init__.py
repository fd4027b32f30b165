"""Bytes to values and back: every format, Samza's and ours, and no I/O above a file."""
