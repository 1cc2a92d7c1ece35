"""The demo: two methods on the built-in images, and a table."""
