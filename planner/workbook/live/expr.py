"""Expressions that are a spreadsheet formula and its value at once.

An :class:`X` carries the text of a formula and what it evaluates to, so a formula and its cached
value cannot differ. Operators and the functions below build bigger ones. In the text ``{r}``
stands for the row of the cell and ``{p}`` for the row above it.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np
from scipy.special import gammainc, ndtr, ndtri

ATOM, POWER, PRODUCT, SUM, COMPARE = 9, 4, 3, 2, 1
"""How tightly the outermost operator of a text binds."""


class X:
    """A formula and its value; not changed once made.

    Attributes
    ----------
    text : str
        Without the leading ``=``.
    value : float or ndarray
        One value a row where the text speaks of a row or a range; of shape (columns, rows), or
        (columns, 1), where it is the formula of several columns at once.
    binds : int
        How tightly the outermost operator binds.
    """

    __slots__ = ("binds", "text", "value")

    def __init__(self, text: str, value: Any, binds: int = ATOM) -> None:
        self.text, self.value, self.binds = text, value, binds

    def at(self, level: int) -> str:
        """The text, in brackets where it binds less than ``level``."""
        return self.text if self.binds >= level else f"({self.text})"

    def __add__(self, other: Any) -> X:
        o = other if other.__class__ is X else x(other)
        a = self.text if self.binds >= SUM else f"({self.text})"
        b = o.text if o.binds >= SUM else f"({o.text})"
        return X(f"{a}+{b}", self.value + o.value, SUM)

    def __radd__(self, other: Any) -> X:
        return x(other) + self

    def __sub__(self, other: Any) -> X:
        o = other if other.__class__ is X else x(other)
        a = self.text if self.binds >= SUM else f"({self.text})"
        b = o.text if o.binds > SUM else f"({o.text})"
        return X(f"{a}-{b}", self.value - o.value, SUM)

    def __rsub__(self, other: Any) -> X:
        return x(other) - self

    def __mul__(self, other: Any) -> X:
        o = other if other.__class__ is X else x(other)
        a = self.text if self.binds >= PRODUCT else f"({self.text})"
        b = o.text if o.binds >= PRODUCT else f"({o.text})"
        return X(f"{a}*{b}", self.value * o.value, PRODUCT)

    def __rmul__(self, other: Any) -> X:
        return x(other) * self

    def __truediv__(self, other: Any) -> X:
        o = other if other.__class__ is X else x(other)
        a = self.text if self.binds >= PRODUCT else f"({self.text})"
        b = o.text if o.binds > PRODUCT else f"({o.text})"
        return X(f"{a}/{b}", _divided(self.value, o.value), PRODUCT)

    def __rtruediv__(self, other: Any) -> X:
        return x(other) / self

    def __pow__(self, other: Any) -> X:
        o = other if other.__class__ is X else x(other)
        return X(f"{self.at(ATOM)}^{o.at(ATOM)}", self.value ** o.value, POWER)

    def __le__(self, other: Any) -> X:
        return self._compared("<=", other, operator.le)

    def __lt__(self, other: Any) -> X:
        return self._compared("<", other, operator.lt)

    def __ge__(self, other: Any) -> X:
        return self._compared(">=", other, operator.ge)

    def __gt__(self, other: Any) -> X:
        return self._compared(">", other, operator.gt)

    def is_(self, other: Any) -> X:
        """Whether two values are equal (``==`` stays the comparison of objects)."""
        return self._compared("=", other, operator.eq)

    def _compared(self, sign: str, other: Any, how: Any) -> X:
        o = other if other.__class__ is X else x(other)
        return X(f"{self.at(SUM)}{sign}{o.at(SUM)}", how(self.value, o.value) * 1.0, COMPARE)


def _divided(a: Any, b: Any) -> Any:
    """``a / b``, 0 where a spreadsheet would show an error (such cells are guarded by IF)."""
    if b.__class__ is float:
        if not b:
            return a * 0.0
        return a / b
    if b.all():
        return a / b
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.asarray(np.divide(a, b))
    return np.where(np.isfinite(found), found, 0.0)


def x(value: Any) -> X:
    """A number (or an expression, as it is) as an expression.

    Examples
    --------
    >>> x(0.000001).text
    '1E-06'
    """
    return value if value.__class__ is X else _constant(float(value))


@functools.lru_cache(maxsize=4096)
def _constant(value: float) -> X:
    return X(repr(value).upper().removesuffix(".0"), value, ATOM if value >= 0 else SUM)


def words(text: str) -> X:
    """A text constant."""
    quoted = text.replace('"', '""')
    return X(f'"{quoted}"', text)


def _call(name: str, value: Any, *args: X) -> X:
    return X(f"{name}({','.join(a.text for a in args)})", value)


def exp(a: Any) -> X:
    """e to the power of ``a``."""
    a = x(a)
    if a.value.__class__ is float:
        return _call("EXP", math.exp(min(a.value, 700.0)), a)
    return _call("EXP", np.exp(np.minimum(a.value, 700.0)), a)


def ln(a: Any) -> X:
    """Natural logarithm."""
    a = x(a)
    return _call("LN", np.log(a.value), a)


def sqrt(a: Any) -> X:
    """Square root."""
    a = x(a)
    return _call("SQRT", (math.sqrt if a.value.__class__ is float else np.sqrt)(a.value), a)


def absolute(a: X) -> X:
    """Size of a number, row by row."""
    return _call("ABS", abs(a.value), a)


def whole(a: Any) -> X:
    """Largest whole number that is not above ``a``."""
    a = x(a)
    return _call("INT", np.floor(a.value), a)


def round_up(a: Any) -> X:
    """Smallest whole number that is not below ``a`` (which is not negative)."""
    a = x(a)
    return X(f"ROUNDUP({a.text},0)", np.ceil(a.value))


def nearest(a: X) -> X:
    """The nearest whole number of a value that is not negative."""
    return X(f"ROUND({a.text},0)", np.floor(a.value + 0.5))


def as_number(a: X) -> X:
    """A cell whose text, if it holds one, counts as 0 here (for cells guarded by a test)."""
    return X(a.text, 0.0 if isinstance(a.value, str) or a.value is None else a.value, a.binds)


def most(*args: Any) -> X:
    """Largest of single values, row by row."""
    found = [x(a) for a in args]
    return _call("MAX", _folded(found, max, np.maximum), *found)


def least(*args: Any) -> X:
    """Smallest of single values, row by row."""
    found = [x(a) for a in args]
    return _call("MIN", _folded(found, min, np.minimum), *found)


def _folded(found: list[X], one: Any, many: Any) -> Any:
    """A function of two values over all of them: of single ones, or of rows."""
    value = found[0].value
    for a in found[1:]:
        single = value.__class__ is float and a.value.__class__ is float
        value = one(value, a.value) if single else many(value, a.value)
    return value


def when(test: X, yes: Any, no: Any) -> X:
    """``yes`` where the test holds, else ``no``."""
    a, b = (v if isinstance(v, X) else words(v) if isinstance(v, str) else x(v)
            for v in (yes, no))
    if test.value.__class__ is np.ndarray:
        value = np.where(test.value > 0, a.value, b.value)
    else:
        value = a.value if test.value else b.value
    return _call("IF", value, test, a, b)


def both(*tests: X) -> X:
    """Whether all tests hold."""
    value: Any = 1.0
    for t in tests:
        value = value * (t.value > 0)
    return _call("AND", value * 1.0, *tests)


def is_number(a: X) -> X:
    """Whether a cell holds a number."""
    return _call("ISNUMBER", float(not isinstance(a.value, str) and a.value is not None), a)


def _over_rows(how: Any, value: Any) -> Any:
    """A function of all rows: one number, or one a column."""
    if value.__class__ is np.ndarray and value.ndim == 2:
        return how(value, axis=1, keepdims=True)
    return float(how(value))


def total(a: X) -> X:
    """Sum over the rows of an expression of ranges."""
    return _call("SUMPRODUCT", _over_rows(np.sum, a.value), a)


def highest(a: X) -> X:
    """Largest row of an expression of ranges."""
    return X(f"SUMPRODUCT(MAX({a.text}))", _over_rows(np.max, a.value))


def lowest(a: X) -> X:
    """Smallest row of an expression of ranges."""
    return X(f"SUMPRODUCT(MIN({a.text}))", _over_rows(np.min, a.value))


def normal(a: X) -> X:
    """Standard normal distribution function."""
    return _call("NORMSDIST", ndtr(a.value), a)


def normal_inverse(a: X) -> X:
    """Quantile of the standard normal distribution."""
    return _call("NORMSINV", ndtri(a.value), a)


def gamma(t: X, shape: X, scale: X) -> X:
    """Gamma distribution function at ``t`` of at least 0."""
    value = gammainc(shape.value, np.asarray(t.value) / scale.value)
    return X(f"GAMMADIST({t.text},{shape.text},{scale.text},TRUE)", value)


def pick(column: X, place: X) -> X:
    """A row of a range, counted from 1."""
    values = np.asarray(column.value)
    text = f"INDEX({column.text},{place.text})"
    if place.value.__class__ is np.ndarray:
        index = np.clip(place.value, 1, values.shape[-1]).astype(int) - 1
        if values.ndim == 2:
            return X(text, values[:, index] if index.ndim == 1
                     else np.take_along_axis(values, index, axis=1))
        return X(text, values[index])
    return X(text, values[min(max(int(place.value), 1), len(values)) - 1])


def place_below(value: X, column: X) -> X:
    """Place (from 1) of the last row of an ascending range that is not above a value."""
    index = np.searchsorted(np.asarray(column.value), value.value, side="right")
    place = np.maximum(index, 1) * 1.0 if np.ndim(index) else float(max(int(index), 1))
    return X(f"MATCH({value.text},{column.text},1)", place)


def square(a: X) -> X:
    """``a`` times itself."""
    return a ** 2
