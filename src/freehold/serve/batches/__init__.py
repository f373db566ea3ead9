"""Files and batches: ``/v1/files`` and ``/v1/batches``, on disk, and behind all other work."""
