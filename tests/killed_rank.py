"""The command `mgformer`, whose second process is killed in the middle of the second epoch.

    python -m tests.killed_rank train …

It is not killed again when torchrun has restarted it.
"""

import os
import signal

from mgformer.cli import main
from mgformer.training import loop

KILLED_AT = int(os.environ.get("KILLED_AT", "0"))
"""The step at which the process is killed; 0: never."""


def run() -> None:
    """Run the command."""
    loop.CHECKPOINT_SECONDS = 0  # every epoch has a checkpoint
    step_on, count = loop.step_on, 0

    def counted(*arguments, **more):
        nonlocal count
        count += 1
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if first and os.environ.get("RANK") == "1" and count == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return step_on(*arguments, **more)

    loop.step_on = counted
    main()


if __name__ == "__main__":
    run()
