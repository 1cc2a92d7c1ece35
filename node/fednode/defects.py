"""Reports of defects of fednode itself: a file for the developers, a sentence for the user."""

from __future__ import annotations

import tempfile
import traceback


def reported(fault: BaseException) -> str:
    """Write the details of a fault to a new file; return a sentence that names it."""
    said = f"a defect of fednode itself ({type(fault).__name__}: {fault}); the details are"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="fednode-crash-", suffix=".txt", delete=False
        ) as report:
            report.writelines(traceback.format_exception(fault))
    except OSError as full:
        return f"{said} lost, because no temporary file could be written ({full})."
    return f"{said} in {report.name}: please report them."
