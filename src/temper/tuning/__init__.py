"""Bench, batch sweep, search, mixed precision, explain, fit."""
