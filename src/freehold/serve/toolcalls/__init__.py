"""Calls of tools in what models write: one small incremental parser for each way to write them."""
