"""Load tests of any OpenAI-compatible server: clients, clocks, workloads, statistics, results."""
