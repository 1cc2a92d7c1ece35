"""Measure other peer-to-peer systems and fednode in one run, each in an environment of its own."""
