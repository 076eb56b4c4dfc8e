"""Recording: events of the profiled process, on the wire, in the server, on disk."""
