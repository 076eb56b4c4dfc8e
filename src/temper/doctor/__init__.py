"""Checks of host, driver, card and environment."""
