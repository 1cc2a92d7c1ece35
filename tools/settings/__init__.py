"""The files that explain settings, generated from the settings' dataclasses.

The text below a field of a settings dataclass explains that field, and nothing else does. From
these texts, the types and the defaults come configs/node.yaml, configs/peers.yaml (`fednode init`
writes both), configs/schema/*.json for editors, and docs/settings.md.
"""
