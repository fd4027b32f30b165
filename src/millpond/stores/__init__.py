"""One task's stores: the buffered key-value store over an engine, serdes, and the memory engine."""
