"""Reports about a run: summary, advice, diff, page, terminal, and files for other tools."""
