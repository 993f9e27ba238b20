"""Selection of the logits in the result of a model."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from torch import Tensor

Output = str | int | Callable[[Any], Tensor]
"""A key, an attribute, a position, or a function of the model's result."""


def logits_of(result: Any, output: Output | None = None) -> Tensor:
    """Return the logits in the result of a model.

    Args:
        result: A tensor, or any other result.
        output: Selects the logits: a key, an attribute, a position or a function of the result.
            None accepts a tensor, or a mapping with the key ``"logits"``.

    Returns:
        The logits.

    Raises:
        ValueError: If the selected value is missing or is not a tensor.
    """
    if output is None and isinstance(result, Mapping) and "logits" in result:
        output = "logits"
    if callable(output):
        result = output(result)
    elif output is not None:
        result = _part(result, output)
    if not isinstance(result, Tensor):
        raise ValueError(
            f"the model returned {_described(result)}: pass output=, a key, a position or a "
            "function that selects the logits"
        )
    return result


def _part(result: Any, output: str | int) -> Any:
    """Return the attribute, key or position ``output`` of a result."""
    is_container = isinstance(result, Mapping | Tensor)
    if isinstance(output, str) and not is_container and hasattr(result, output):
        return getattr(result, output)
    if not isinstance(result, Tensor):
        with suppress(KeyError, IndexError, TypeError):
            return result[output]
    raise ValueError(f"the model returned {_described(result)}, which has no output {output!r}")


def _described(result: Any) -> str:
    if isinstance(result, Mapping):
        return f"a {type(result).__name__} with {', '.join(map(str, result))}"
    if isinstance(result, list | tuple):
        return f"a {type(result).__name__} of {len(result)}"
    return f"a {type(result).__name__}"
