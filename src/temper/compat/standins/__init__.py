"""Folders of stand-in packages; compat.install loads them under the names scripts import."""
