"""Settings: files, variables and flags to typed values, and a sentence for whatever is wrong."""
