"""Settings documents of the mesh of tests/unit/app/founders.py."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fednode.app.admission import right_of
from fednode.app.plan import NodePlan
from fednode.identity.document import Content, sign
from fednode.settings.agreed import agreed
from tests.unit.app.founders import MESH, identity_of


def content(plan: NodePlan, number: int, **changed: Any) -> Content:
    """Return what a document says, with some fields changed; settings: sections that change."""
    tree = agreed(plan.settings)
    for section, values in changed.pop("settings", {}).items():
        whole = isinstance(values, Mapping) and section != "policy"
        tree[section] = {**tree.get(section, {}), **values} if whole else values
    given: dict[str, Any] = {
        "previous": "",
        "start": 0,
        "settings": tree,
        "issued": int(time.time()),
        **changed,
    }
    return Content(mesh=MESH, number=number, **given)


def document(plan: NodePlan, number: int, **changed: Any) -> bytes:
    """Return a document that the founder signs."""
    return sign(identity_of(plan).key, right_of(plan.state), content(plan, number, **changed))
