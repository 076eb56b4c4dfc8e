"""Run records, capture server, writers, readers, advice and diff."""
