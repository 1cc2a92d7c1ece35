"""Time local tuning against open_clip, called as the papers' code calls it; see `fednode bench`."""
