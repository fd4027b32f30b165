"""One checkpoint over all tasks of a job: the coordinator, its durable record, its transports, barrier alignment."""
