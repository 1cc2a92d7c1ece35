"""The commands of `fednode`, one file each; cli.py imports a command when it is called."""
