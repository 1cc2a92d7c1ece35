"""The identity of a node (key, certificate, leases of the mesh key), and whom it trusts."""
