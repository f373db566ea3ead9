"""Processes for work that hostile input can make long: they can be ended, and take no more than they may."""
