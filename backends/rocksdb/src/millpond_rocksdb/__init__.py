"""RocksDB as a store engine, and as a state backend on a local disk."""
