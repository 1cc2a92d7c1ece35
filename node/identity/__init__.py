"""Who a node is: its key and certificate, leases of the mesh key, and whom it believes."""
