"""How a node or an introducer gives leases to newcomers, and how a newcomer asks for one."""
