"""The pure core: it decides what a node does and performs nothing (stdlib and numpy only)."""
