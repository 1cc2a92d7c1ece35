"""Bring a mesh to life: identities, a local mesh, and the embedded default model."""
