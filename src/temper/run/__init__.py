"""The run: records, tables and timeline of a profile, its folder, and readers of card CSVs."""
