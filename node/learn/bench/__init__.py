"""Time local tuning against open_clip as it is used in the papers' code; see `fednode bench`."""
