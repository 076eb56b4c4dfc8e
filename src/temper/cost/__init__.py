"""From a program to nanoseconds, with a band."""
