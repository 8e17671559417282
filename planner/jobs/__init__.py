"""Long work: a queue in the database, executors, and the thread that brings them together."""
