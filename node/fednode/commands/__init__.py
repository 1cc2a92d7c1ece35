"""The commands of `fednode`: a file for each, under the command's name.

cli.py imports a command when it is called. `control.py` holds commands of one line each
(pause, resume), which send a word to a node.
"""
