"""Words of the command line on who runs an experiment's cells. Importing this imports no torch."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from typing import Final, Literal

from fednode.errors import ConfigError

Kind = Literal["local", "slurm", "dask", "ray"]
PACKAGES: Final[Mapping[Kind, str]] = {"slurm": "submitit", "dask": "distributed", "ray": "ray"}
SLURM: Final = "slurm"
"""The word for --shard that takes a job's place in its array."""


def needs(kind: Kind) -> None:
    """Raise ConfigError if the package of an executor is not installed."""
    package = PACKAGES.get(kind)
    if package is None:
        return
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:  # a folder of that name is no package
        raise ConfigError(
            f"--executor {kind} needs the package {package}, which is not installed: run "
            f"pip install 'fednode[{kind}]', or use --executor local."
        )


def share(text: str, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return (i, n), 0 <= i < n: this process runs the cells i, i + n, i + 2n, ...

    text: "1/n" to "n/n", or "slurm" for a job of an array, by Slurm's variables. Raise ConfigError.
    """
    if text == SLURM:
        return _of_array(environment)
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(
            f"--shard is {text!r}; give I/N with I from 1 to N, 2/4 for example, or {SLURM} in an "
            "array of Slurm's jobs."
        )
    return int(match[1]) - 1, int(match[2])


def _of_array(environment: Mapping[str, str]) -> tuple[int, int]:
    if "SLURM_ARRAY_TASK_ID" not in environment:
        raise ConfigError(
            f"--shard {SLURM} takes the share from SLURM_ARRAY_TASK_ID, which is not set: submit "
            "the command with sbatch --array=1-N, or give --shard I/N."
        )
    names = {"ID": "", "COUNT": "", "MIN": "0", "STEP": "1"}
    given = {name: environment.get(f"SLURM_ARRAY_TASK_{name}", names[name]) for name in names}
    if all(text.isdecimal() for text in given.values()) and int(given["STEP"]) > 0:
        place, rest = divmod(int(given["ID"]) - int(given["MIN"]), int(given["STEP"]))
        if rest == 0 and 0 <= place < int(given["COUNT"]):
            return place, int(given["COUNT"])
    said = ", ".join(f"SLURM_ARRAY_TASK_{name} is {text!r}" for name, text in given.items())
    raise ConfigError(
        f"{said}; --shard {SLURM} takes an array without gaps, such as sbatch --array=1-N, or give "
        "--shard I/N."
    )
