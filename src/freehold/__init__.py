"""Freehold: own your LLM inference."""
