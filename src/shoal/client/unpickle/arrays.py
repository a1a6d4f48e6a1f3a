"""Rules of restricted unpickling for numpy and pandas values; see `restricted`.

Both libraries trust what they load: a dtype whose flags lie makes numpy read bytes as addresses, a block placed outside of
its frame makes pandas write beyond an array. So each state is compared with what the library itself would have written,
and each part is checked against the others, before the library gets it. Names are those of numpy 1.17 to 2 and of pandas
1.4 to 3; neither is loaded unless a result names it.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from shoal.client.unpickle.rules import Name, Rule, holds_name, is_finite_shape, need
from shoal.client.unpickle.trust import Pair

_CORES = ("numpy.core", "numpy._core")
_TYPE = re.compile(r"(?:[?bBhHiIlLqQefdgFDGSUVOMm]|[biufcSUVOMm])[0-9]{0,9}")
_NDARRAY: Pair = ("numpy", "ndarray")


# --- numpy
def _dtype(text: Any, align: Any = False, copy: Any = True) -> Any:
    import numpy

    need(type(text) is str and _TYPE.fullmatch(text) and align in (False, 0) and copy in (True, 1), "dtype")
    return numpy.dtype(text, False, True)  # a copy: the state of the one that all share stays as it is


def _dtype_state(value: Any, state: Any) -> None:
    """Set the state of a dtype, if it is the one that numpy itself gives a dtype of this description."""
    import numpy

    need(type(state) is tuple and len(state) in (8, 9), "dtype")
    need(state[0] in (3, 4) and state[1] in ("<", ">", "|", "="), "dtype")
    order, subtype, names, fields, size = state[1:6]
    # Only these kinds take their size from the state: it must be the one that the dtype already has.
    need(value.kind not in "SUV" or (type(size) is int and size == value.itemsize), "dtype")
    need(value.kind == "V" or (fields is None and subtype is None), "dtype")
    if fields is not None:
        need(type(names) is tuple and type(fields) is dict and set(names) == set(fields) and subtype is None, "dtype")
        parts = [fields[name] for name in names]
        need(all(type(name) is str for name in names), "dtype")
        need(all(type(part) is tuple and len(part) == 2 for part in parts), "dtype")
        need(all(isinstance(part[0], numpy.dtype) for part in parts), "dtype")
        need(not any(part[0].hasobject for part in parts), "dtype with objects in fields")
        formats, offsets = [part[0] for part in parts], [part[1] for part in parts]
        wanted = numpy.dtype({"names": list(names), "formats": formats, "offsets": offsets, "itemsize": size})
    elif subtype is not None:
        need(type(subtype) is tuple and len(subtype) == 2 and isinstance(subtype[0], numpy.dtype), "dtype")
        need(is_finite_shape(subtype[1]) and not subtype[0].hasobject, "dtype")
        wanted = numpy.dtype(subtype)
    elif value.kind in "Mm":
        unit: Any = state[8][1] if len(state) == 9 and type(state[8]) is tuple and len(state[8]) == 2 else None
        need(type(unit) is tuple and len(unit) == 4 and type(unit[0]) is bytes, "dtype")
        need(all(type(n) is int for n in unit[1:]), "dtype")
        name = unit[0].decode("ascii")
        need(re.fullmatch("[A-Za-z]{1,7}", name) and unit[2:] == (1, 1), "dtype")
        of = "" if name == "generic" else f"[{unit[1]}{name}]"
        wanted = numpy.dtype(f"{value.kind}8{of}").newbyteorder(order)
    elif value.kind in "SUV":
        wanted = numpy.dtype(f"{value.kind}{size // 4 if value.kind == 'U' else size}").newbyteorder(order)
    else:
        wanted = value.newbyteorder(order)
    true = wanted.__reduce__()[2]
    # Flags, sizes and alignment are derived; metadata of the user's own is not taken.
    need(len(true) == len(state) and _same(true, state, wanted), "dtype")
    # numpy keeps the dictionary itself, and a pickle could put other fields into its own one later.
    value.__setstate__((*state[:4], None if fields is None else dict(fields), *state[5:]))


def _same(true: Any, state: Any, wanted: Any) -> bool:
    if true[:5] != state[:5] and not (wanted.fields and true[:4] == state[:4] and dict(true[4]) == dict(state[4])):
        return False
    if true[5:8] != state[5:8]:
        return False
    # The metadata may be an empty dictionary or none.
    return len(true) == 8 or ((not state[8][0]) and true[8][1] == state[8][1])


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> Any:
    import numpy

    need(isinstance(dtype, numpy.dtype) and not dtype.hasobject and is_finite_shape(shape), "array")
    need(isinstance(buffer, (bytes, bytearray, memoryview)) and order in ("C", "F", "K", "A"), "array")
    flat = numpy.frombuffer(buffer, dtype=dtype)
    if order == "K" and axes is not None:
        need(type(axes) in (tuple, list) and sorted(axes) == list(range(len(shape))), "array")
        return flat.reshape(shape, order="C").transpose(axes)
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _reconstruct(kind: Any, shape: Any, dtype: Any) -> Any:
    import numpy

    need(isinstance(kind, Name) and kind.pair == _NDARRAY and shape == (0,) and dtype in (b"b", "b"), "array")
    return numpy.ndarray((0,), "b")


def _array_state(value: Any, state: Any) -> None:
    import numpy

    need(type(state) is tuple and len(state) == 5 and state[0] == 1, "array")
    _, shape, dtype, fortran, data = state
    need(is_finite_shape(shape) and isinstance(dtype, numpy.dtype) and type(fortran) in (bool, int), "array")
    if dtype.hasobject:
        need(dtype == numpy.dtype(object) and type(data) is list and len(data) == math.prod(shape), "array of objects")
        need(not holds_name(data), "array of objects")
    else:
        need(isinstance(data, (bytes, bytearray)) and dtype.itemsize, "array")
        need(len(data) == math.prod(shape) * dtype.itemsize, "array")
    value.__setstate__(state)


def _scalar(dtype: Any, data: Any) -> Any:
    import numpy

    need(isinstance(dtype, numpy.dtype) and not dtype.hasobject and not dtype.fields, "number")
    need(type(data) is bytes and len(data) == dtype.itemsize, "number")
    return numpy.frombuffer(data, dtype=dtype)[0] if dtype.itemsize else dtype.type()


def _linalg_error(*args: Any) -> Any:
    import numpy

    need(not holds_name(args), "LinAlgError")
    return numpy.linalg.LinAlgError(*args)


# --- pandas
_INDEXES = {
    "Index": "pandas.core.indexes.base", "RangeIndex": "pandas.core.indexes.range",
    "MultiIndex": "pandas.core.indexes.multi", "DatetimeIndex": "pandas.core.indexes.datetimes",
}  # fmt: skip
_ARRAYS = {
    "DatetimeArray": "pandas.core.arrays.datetimes", "StringArray": "pandas.core.arrays.string_",
    "Categorical": "pandas.core.arrays.categorical",
}  # fmt: skip
_MASKED = {
    "IntegerArray": "pandas.core.arrays.integer", "FloatingArray": "pandas.core.arrays.floating",
    "BooleanArray": "pandas.core.arrays.boolean",
}  # fmt: skip
_FRAMES = {"DataFrame": "pandas.core.frame", "Series": "pandas.core.series"}
_DTYPES = {
    "CategoricalDtype": "pandas.core.dtypes.dtypes", "DatetimeTZDtype": "pandas.core.dtypes.dtypes",
    "BooleanDtype": "pandas.core.arrays.boolean",
}  # fmt: skip
_OFFSETS = (
    *("Day", "BusinessDay", "Hour", "Minute", "Second", "Milli", "Micro", "Nano", "MonthEnd", "MonthBegin"),
    *("BusinessMonthEnd", "BusinessMonthBegin"),
)
_MANAGERS = "pandas.core.internals.managers"


def _pandas(name: str) -> Any:
    pandas = import_module("pandas")
    return getattr(pandas if hasattr(pandas, name) else pandas.arrays, name)


def _is_index(value: Any) -> bool:
    return type(value).__name__ in _INDEXES and type(value) is _pandas(type(value).__name__)


def _is_array(value: Any) -> bool:
    import numpy

    known = {**_ARRAYS, **_MASKED}
    return type(value) is numpy.ndarray or (
        type(value).__name__ in known and type(value) is _pandas(type(value).__name__)
    )


def _new_index(cls: Any, data: Any) -> Any:
    need(isinstance(cls, Name) and cls.pair[1] in _INDEXES and type(data) is dict and not holds_name(data), "index")
    kind, known = cls.pair[1], dict(data)
    if kind == "RangeIndex":
        need(set(known) <= {"name", "start", "stop", "step"}, "index")
        need(all(type(known.get(part, 0)) is int for part in ("start", "stop", "step")), "index")
        return _pandas(kind)(known["start"], known["stop"], known["step"], name=known.get("name"))
    if kind == "MultiIndex":
        need(set(known) <= {"levels", "codes", "sortorder", "names"}, "index")
        need(all(_is_index(level) for level in known["levels"]), "index")
        return _pandas(kind)(known["levels"], known["codes"], names=list(known["names"]), verify_integrity=True)
    need(set(known) <= {"data", "name", "freq", "tz", "dtype"} and _is_array(known["data"]), "index")
    more = {"freq": known["freq"]} if kind == "DatetimeIndex" and known.get("freq") is not None else {}
    return _pandas(kind)(known["data"], name=known.get("name"), **more)


def _unpickle_block(values: Any, placement: Any, ndim: Any) -> Any:
    import numpy

    need(_is_array(values) and ndim in (1, 2), "block")
    rows = values.shape[0] if ndim == 2 and values.ndim == 2 else 1 if ndim == 2 else len(values)
    if type(placement) is slice:
        first, last, step = placement.start, placement.stop, placement.step
        need(all(type(n) is int and n >= 0 for n in (first, last)), "block")
        need(step is None or (type(step) is int and step > 0), "block")
        need(len(range(first, last, step or 1)) == rows, "block")
    else:
        need(type(placement) is numpy.ndarray and placement.dtype.kind == "i" and placement.shape == (rows,), "block")
    return import_module("pandas._libs.internals")._unpickle_block(values, placement, ndim)


def _block_manager(blocks: Any, axes: Any) -> Any:
    import numpy

    need(type(blocks) is tuple and type(axes) is list, "frame")
    need(len(axes) == 2 and all(_is_index(axis) for axis in axes), "frame")
    rows, found = len(axes[1]), []
    for block in blocks:
        need(type(block).__module__.startswith("pandas.core.internals.") and block.ndim == 2, "frame")
        need(block.shape == (len(block.mgr_locs), rows), "frame")
        found.append(block.mgr_locs.as_array)
    positions = numpy.sort(numpy.concatenate(found)) if found else numpy.arange(0)
    need(numpy.array_equal(positions, numpy.arange(len(axes[0]))), "frame")
    made = import_module(_MANAGERS).BlockManager(blocks, axes)
    made._verify_integrity()
    return made


def _series_manager() -> Any:
    kind = import_module(_MANAGERS).SingleBlockManager
    return kind.__new__(kind)


def _series_manager_state(value: Any, state: Any) -> None:
    need(type(state) is tuple and len(state) >= 4 and type(state[3]) is dict, "series")
    inner = state[3].get("0.14.1")
    need(type(inner) is dict and set(inner) == {"axes", "blocks"}, "series")
    axes, blocks = inner["axes"], inner["blocks"]
    need(type(axes) is list and len(axes) == 1 and _is_index(axes[0]), "series")
    need(type(blocks) is list and len(blocks) == 1, "series")
    block = blocks[0]
    need(type(block) is dict and set(block) == {"values", "mgr_locs"} and _is_array(block["values"]), "series")
    size, where = len(axes[0]), block["mgr_locs"]
    need(len(block["values"]) == size and type(where) is slice, "series")
    need((where.start or 0, where.stop, where.step or 1) == (0, size, 1), "series")
    value.__setstate__((axes, [block["values"]], axes, {"0.14.1": inner}))


def _frame_state(value: Any, state: Any) -> None:
    managers = import_module(_MANAGERS)
    known = {"_mgr", "_typ", "_metadata", "attrs", "_flags", "_name", "name"}
    need(type(state) is dict and set(state) <= known, "frame")
    need(not holds_name({key: part for key, part in state.items() if key != "_mgr"}), "frame")
    kind = managers.BlockManager if type(value).__name__ == "DataFrame" else managers.SingleBlockManager
    need(type(state.get("_mgr")) is kind and state.get("_typ") in ("dataframe", "series"), "frame")
    need(state.get("_metadata") in ([], ["_name"], ["name"]) and type(state.get("attrs", {})) is dict, "frame")
    flags: Any = ({}, {"allows_duplicate_labels": True}, {"allows_duplicate_labels": False})
    need(state.get("_flags", {}) in flags, "frame")
    value.__setstate__(state)


def _new_backed(cls: Any, checksum: Any, state: Any) -> Any:
    need(isinstance(cls, Name) and cls.pair[1] in _ARRAYS and type(checksum) is int and state is None, "array")
    kind = _pandas(cls.pair[1])
    return kind.__new__(kind)


def _backed_state(value: Any, state: Any) -> None:
    """The state of an array that pandas keeps as a numpy array and a dtype: (dtype, array[, attributes])."""
    import numpy

    need(type(state) is tuple and len(state) in (2, 3), "array")
    if type(state[0]) is numpy.ndarray:
        state = (state[1], state[0], *state[2:])  # older ones have it the other way round
    dtype, data = state[:2]
    need(type(data) is numpy.ndarray, "array")
    if type(value).__name__ == "Categorical":
        need(type(dtype) is _pandas("CategoricalDtype") and data.dtype.kind == "i" and data.ndim == 1, "array")
        need(not data.size or (data.min() >= -1 and data.max() < len(dtype.categories)), "array")
    elif type(value).__name__ == "StringArray":
        need(type(dtype) is _pandas("StringDtype") and data.dtype == numpy.dtype(object), "array")
    else:
        same = isinstance(dtype, numpy.dtype) and dtype.kind == "M" and dtype == data.dtype
        need(same or (type(dtype) is _pandas("DatetimeTZDtype") and data.dtype.kind == "M"), "array")
    value.__setstate__((dtype, data))
    freq = state[2].get("_freq") if len(state) == 3 and type(state[2]) is dict else None
    if type(value).__name__ == "DatetimeArray" and type(freq).__name__ in _OFFSETS:
        value._freq = freq


def _offset(name: str) -> Rule:
    def call(count: Any = 1, normalize: Any = False) -> Any:
        need(type(count) is int and type(normalize) is bool, name)
        return getattr(import_module("pandas").offsets, name)(count, normalize)

    return Rule(call)


def _masked_state(value: Any, state: Any) -> None:
    import numpy

    need(type(state) is dict and set(state) <= {"_data", "_mask", "_dtype", "_cache", "_readonly"}, "array")
    data, mask = state.get("_data"), state.get("_mask")
    kinds = {"IntegerArray": "iu", "FloatingArray": "f", "BooleanArray": "b"}[type(value).__name__]
    need(type(data) is numpy.ndarray and data.dtype.kind in kinds, "array")
    need(type(mask) is numpy.ndarray and mask.dtype == numpy.dtype(bool) and data.shape == mask.shape, "array")
    value.__init__(data, mask)


def _empty(name: str) -> Callable[[], Any]:
    def make() -> Any:
        kind = _pandas(name)
        return kind.__new__(kind)

    return make


def _dtype_with_fields(value: Any, state: Any) -> None:
    need(type(state) is dict and not holds_name(state), "dtype")
    if type(value).__name__ == "BooleanDtype":
        need(set(state) <= {"_cache"}, "dtype")  # what it computed from itself
        return
    if type(value).__name__ == "CategoricalDtype":
        need(set(state) == {"categories", "ordered"} and type(state["ordered"]) in (bool, type(None)), "dtype")
        need(_is_index(state["categories"]), "dtype")
    else:
        need(set(state) == {"unit", "tz"} and state["unit"] in ("s", "ms", "us", "ns"), "dtype")
        need(type(state["tz"]) is datetime.timezone, "dtype")
    value.__setstate__(state)


def _string_dtype(storage: Any, missing: Any = None) -> Any:
    # What Arrow stores is built by Arrow, whose pickles are not checked here.
    pandas = import_module("pandas")
    need(storage == "python" and (missing is None or missing is pandas.NA or missing != missing), "dtype")
    return pandas.StringDtype(storage) if missing is None else pandas.StringDtype(storage, missing)


def _timestamp(value: Any, freq: Any, zone: Any, unit: Any = 10) -> Any:
    import numpy

    pandas = import_module("pandas")
    need(type(value) is int and freq is None and unit in range(7, 11), "Timestamp")
    need(zone is None or type(zone) is datetime.timezone, "Timestamp")
    made = pandas.Timestamp(numpy.datetime64(value, ("s", "ms", "us", "ns")[unit - 7]))
    return made if zone is None else made.tz_localize("UTC").tz_convert(zone)


def _timedelta(value: Any, unit: Any = 10) -> Any:
    import numpy

    pandas = import_module("pandas")
    need(type(value) is int and unit in range(7, 11), "Timedelta")
    return pandas.Timedelta(numpy.timedelta64(value, ("s", "ms", "us", "ns")[unit - 7]))


def _missing(name: str) -> Callable[..., Any]:
    def make(*args: Any) -> Any:
        need(all(arg is None for arg in args), name)
        return _pandas(name)

    return make


RULES: dict[Pair, Rule] = {
    ("numpy", "dtype"): Rule(_dtype),
    _NDARRAY: Rule(),
    ("numpy.linalg", "LinAlgError"): Rule(_linalg_error),
    ("numpy.linalg.linalg", "LinAlgError"): Rule(_linalg_error),
    **{(f"{core}.numeric", "_frombuffer"): Rule(_frombuffer) for core in _CORES},
    **{(f"{core}.multiarray", "_reconstruct"): Rule(_reconstruct) for core in _CORES},
    **{(f"{core}.multiarray", "scalar"): Rule(_scalar) for core in _CORES},
    ("pandas.core.indexes.base", "_new_Index"): Rule(_new_index),
    ("pandas.core.indexes.datetimes", "_new_DatetimeIndex"): Rule(_new_index),
    ("pandas._libs.internals", "_unpickle_block"): Rule(_unpickle_block),
    (_MANAGERS, "BlockManager"): Rule(_block_manager),
    (_MANAGERS, "SingleBlockManager"): Rule(new=_series_manager),
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"): Rule(_new_backed),
    ("pandas._libs.tslibs.timestamps", "_unpickle_timestamp"): Rule(_timestamp),
    ("pandas._libs.tslibs.timedeltas", "_timedelta_unpickle"): Rule(_timedelta),
    ("pandas._libs.tslibs.nattype", "_nat_unpickle"): Rule(_missing("NaT")),
    **{(module, "StringDtype"): Rule(_string_dtype) for module in ("pandas", "pandas.core.arrays.string_")},
    **{("pandas._libs.tslibs.offsets", name): _offset(name) for name in _OFFSETS},
    **{(home, name): Rule() for name, module in _INDEXES.items() for home in ("pandas", module)},
    **{
        (home, name): Rule() for name, module in _ARRAYS.items() for home in ("pandas", "pandas.arrays", module)
    },
    **{
        (home, name): Rule(new=_empty(name))
        for names in (_MASKED, _FRAMES, _DTYPES)
        for name, module in names.items()
        for home in ("pandas", "pandas.arrays", module)
    },
}  # fmt: skip
VALUES: frozenset[Pair] = frozenset({("pandas", "NA"), ("pandas._libs.missing", "NA")})


def value_of(pair: Pair) -> Any:
    """The value of a name of `VALUES`."""
    return _pandas(pair[1])


def is_hollow(value: Any) -> bool:
    """True for a value that was made without its state, and whose C code would read the missing state as an array."""
    kind = type(value)
    if kind.__module__.partition(".")[0] != "pandas":
        return False
    if kind.__name__ in _ARRAYS and kind is _pandas(kind.__name__):
        return True
    return kind is type(_series_manager())


def state_of(value: Any) -> Callable[[Any, Any], None] | None:
    """The function that sets the state of a numpy or pandas value; None for values that have no state."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "numpy":
        import numpy

        return _array_state if kind is numpy.ndarray else _dtype_state if isinstance(value, numpy.dtype) else None
    if kind.__module__.partition(".")[0] != "pandas":
        return None
    name = kind.__name__
    builders = (
        (_ARRAYS, _backed_state),
        (_MASKED, _masked_state),
        (_FRAMES, _frame_state),
        (_DTYPES, _dtype_with_fields),
    )
    for names, build in builders:
        if name in names and kind is _pandas(name):
            return build
    return _series_manager_state if kind is type(_series_manager()) else None
