"""Make property tests repeat themselves: the same examples each time, and no limit on time.

`pytest --hypothesis-profile=explore tests/property` looks for new examples instead.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
if settings.get_current_profile_name() in {"default", "ci"}:
    settings.load_profile("repeatable")
