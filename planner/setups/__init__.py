"""One module a setup: a deployment and a workload become columns, verdicts and latencies."""
