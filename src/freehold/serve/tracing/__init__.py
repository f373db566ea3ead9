"""Traces of requests, in OpenTelemetry's form: what is noted while one is served, and how that becomes spans."""
