"""Members of the mesh: their table, the failure detector, and the graph of neighbours."""
