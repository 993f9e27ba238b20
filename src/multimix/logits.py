"""The logits inside whatever a model returned."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

Output = str | int | Callable[[Any], Tensor]


def logits_of(result: Any, output: Output | None = None) -> Tensor:
    """The tensor in ``result`` that ``output`` points to: a key, an attribute, a position, or what a function picks.

    Without ``output``, ``result`` is the tensor itself or a mapping that holds ``"logits"``.
    """
    if output is None and isinstance(result, Mapping) and "logits" in result:
        output = "logits"
    if callable(output):
        result = output(result)
    elif output is not None:
        result = _part(result, output)
    if not isinstance(result, Tensor):
        raise ValueError(
            f"the model returned {_described(result)}; say with output= which part holds the logits "
            "(a key, a position or a function)"
        )
    return result


def _part(result: Any, output: str | int) -> Any:
    if isinstance(output, str) and hasattr(result, output) and not isinstance(result, Mapping | Tensor):
        return getattr(result, output)
    try:
        if isinstance(result, Tensor):
            raise TypeError
        return result[output]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"the model returned {_described(result)}, which has no output {output!r}") from None


def _described(result: Any) -> str:
    if isinstance(result, Mapping):
        return f"a {type(result).__name__} with {', '.join(map(str, result))}"
    if isinstance(result, list | tuple):
        return f"a {type(result).__name__} of {len(result)}"
    return f"a {type(result).__name__}"
