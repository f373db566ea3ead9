"""Tools: which may be called, how a model is told of them, and an incremental parser for each way to write calls."""
