"""What the server tells of itself while it runs: now, the last hour, and its requests, as JSON."""
