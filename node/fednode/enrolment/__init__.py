"""How a sponsor admits newcomers and renews certificates, and how a node asks for both."""
