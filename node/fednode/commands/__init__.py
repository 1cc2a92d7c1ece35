"""The commands of `fednode`, a file for each; cli.py imports a command when it is called.

`control.py` holds those that send a word to a node (pause, resume, leave), `mesh_key.py` those that
take the mesh key (sponsor, remove).
"""
