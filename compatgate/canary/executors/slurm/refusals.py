"""What Slurm's commands complain about: what another attempt may mend, and what it will not. Pure.

Source: slurm_errno.c of Slurm, whose texts the commands print.
"""

from __future__ import annotations

import re

from compatgate.errors import BadInput, CompatgateError, Infrastructure

_WRONG = (
    (r"invalid partition", "partition", "see 'sinfo' for its partitions"),
    (r"invalid account|account/partition combination", "account", "see 'sacctmgr show assoc'"),
    (r"invalid qos", "qos", "see 'sacctmgr show qos'"),
    (r"invalid (?:generic resource|gres)|invalid tres", "gres", "see 'sinfo -o %G' for its GRES"),
    (r"invalid feature|invalid constraint", "constraint", "see 'sinfo -o %f' for its features"),
    (r"not permitted to use this partition|not allowed to use this partition", "partition", ""),
    (
        r"requested node configuration is not available|node count specification invalid"
        r"|more processors requested than permitted|memory specification can not be satisfied",
        "host",
        "no node of the partition has that many GPUs, cores or that much memory",
    ),
    (r"requested time limit is invalid|time limit specification", "timeout", ""),
    (r"unrecognized option|invalid option|unknown option", "extra", ""),
    (r"requested reservation is invalid|reservation .*invalid", "extra", "see 'scontrol show res'"),
    (r"access/permission denied", "host", "the worker's user may not do this in Slurm"),
)
NO_JOB = re.compile(r"invalid job id specified", re.IGNORECASE)


def refused(command: str, said: str) -> CompatgateError:
    """The error for a command that failed.

    What is not known to be wrong may be mended by another attempt: the controller is away, a
    limit on jobs is reached, munge does not answer.

    Args:
        command: its name.
        said: its standard error.
    """
    what = " ".join(re.sub(rf"^{command}: (?:error: )?", "", line) for line in said.splitlines())
    what = " ".join(what.split())[-512:] or "it said nothing"
    for pattern, field, hint in _WRONG:
        if re.search(pattern, what, re.IGNORECASE):
            return BadInput(f"Slurm refuses the job: {what}", field=field, hint=hint)
    return Infrastructure(f"{command} failed: {what}", field="host")
