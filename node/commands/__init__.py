"""The commands of `fednode`, a file each; cli.py loads them when they are called."""
