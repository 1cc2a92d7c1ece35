"""Compare methods on one data set: a YAML file in, tables out. `fednode experiment` runs it."""
