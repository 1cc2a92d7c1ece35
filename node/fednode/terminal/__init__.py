"""What people see in a terminal: rich views of statuses, and the kinds of command-line options."""
