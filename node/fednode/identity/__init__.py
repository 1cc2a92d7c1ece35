"""The identity of a node (key and certificates), and the roster of the mesh's members."""
