"""Generated from proto/ by `python -m tools.protogen`; never edited."""
