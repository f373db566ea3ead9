"""Structured output: from a constraint on an answer's text to masks over the vocabulary."""
