"""Networks that methods work with, still to be made: descriptions that settings can hold, files can keep and words can change."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Generator, Tensor, nn


class NewNetwork(ABC):
    """Stands for a network until :meth:`multimix.methods.Method.fitted` has the model and the images it is made of."""

    @abstractmethod
    def made(self, model: nn.Module, images: Tensor, *, updates: int | None, generator: Generator, blank: bool) -> Any:
        """The network for a training of ``updates`` steps of ``model`` on such ``images [N, C, …]``, where they are.

        ``blank`` leaves out what it would learn from them: weights are loaded next.
        """
