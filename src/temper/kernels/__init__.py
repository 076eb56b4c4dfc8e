"""The native library and its pure-Python twin."""
