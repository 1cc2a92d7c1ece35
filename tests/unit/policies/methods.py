"""The methods of federated averaging, as the registry offers them."""

from __future__ import annotations

from typing import Any, Final

from fednode import registry

AVERAGING: Final[dict[str, Any]] = {
    name: registry.policy(name)
    for name in ("promptfl", "fedclip", "fedmaple", "fedotp", "fedpgp", "fedtpg")
}
PROMPTFL, FEDOTP = AVERAGING["promptfl"], AVERAGING["fedotp"]
