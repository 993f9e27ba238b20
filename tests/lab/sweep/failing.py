"""Networks that end a training in the ways that a sweep must survive."""

import os
import signal

from trial import DropNet


class Raises(DropNet):
    """Says what is wrong."""

    def forward(self, x):
        raise RuntimeError("the network\nis broken")


class Exits(DropNet):
    """Leaves without a word, and as if all were well."""

    def forward(self, x):
        os._exit(0)


class Dies(DropNet):
    """As if memory had run out."""

    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)


class Diverges(DropNet):
    """The loss is not a number."""

    def forward(self, x):
        return super().forward(x) * float("nan")
