"""Who is let in, and in whose name: connections, hosts, origins, keys, the log of requests."""
