"""Measures of quality."""
