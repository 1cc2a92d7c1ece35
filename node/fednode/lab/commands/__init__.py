"""The laboratory's commands."""
