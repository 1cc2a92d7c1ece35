"""Generated from proto/ by `python -m bootstrap.protogen`; never edited."""
