"""Assembly: from settings to the parts of a running node, and from a name to a node's address."""
