"""What the classes of `taillab.records` have in common."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from taillab.records import Quantile


class Record:
    """A JSON object whose keys are attributes, each with the type that its class says.

    A key that is not there is `None`. `record["key"]` and `to_dict()` give the JSON as it is.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        self._made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._made:
            return self._made[name]
        hints = _hints(type(self))
        # `with` is a word of the language, so its attribute is `with_`
        key = name.removesuffix("_")
        if name not in hints and key not in self._data:
            raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(sorted(hints))}")
        made = _typed(hints.get(name, Any), self._data.get(key))
        self._made[name] = made
        return made

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_hints(type(self))})

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Record) and other._data == self._data

    def __hash__(self) -> int:
        return hash(frozenset(self._data))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._data)})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON object as it was read."""
        return self._data


class DistributionRecord(Record):
    """Methods of a distribution."""

    def quantile(self, q: float) -> Quantile | None:
        """The quantile `q` (0.99 for p99) with its 95 % interval `lo` to `hi`, in nanoseconds.

        `None` where the result does not have this quantile. `value` is `None` where the sample cannot support it;
        `hi` where the interval has no upper end.
        """
        quantiles: list[Quantile] = self.quantiles
        return next((quantile for quantile in quantiles if abs(quantile.q - q) < 1e-9), None)


def _hints(kind: type[Record]) -> dict[str, Any]:
    """The type of each attribute of a class."""
    hints: dict[str, Any] | None = vars(kind).get("_types")
    if hints is None:
        hints = get_type_hints(kind)
        # evaluated once, since it takes longer than the rest
        setattr(kind, "_types", hints)
    return hints


def _typed(hint: Any, value: Any) -> Any:
    """A JSON value as an instance of what `hint` says."""
    if value is None:
        return None
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return _typed(kinds[0], value) if len(kinds) == 1 else value
    if origin is list:
        return [_typed(get_args(hint)[0], each) for each in value]
    if origin is tuple:
        return tuple(_typed(kind, each) for kind, each in zip(get_args(hint), value, strict=True))
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint(value)
    return value
