"""Views for a terminal: tables of statuses, live views, and the kinds of command-line options."""
