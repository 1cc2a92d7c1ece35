"""Reports on a node for people and programs: status, metrics, records, logs, page."""
