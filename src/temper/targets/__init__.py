"""Targets that run placed programs."""
