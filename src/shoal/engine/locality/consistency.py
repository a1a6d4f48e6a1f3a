"""Derives the index of files anew, from what pilots told and from what is ready, and compares."""

from __future__ import annotations

from collections import Counter

from shoal.engine.locality.index import SHARED, Cache, File, Reader, cache_key
from shoal.engine.records import Array
from shoal.engine.state import State


def check_data(state: State) -> list[str]:
    """Everything in the index of files that does not add up."""
    data, wrong = state.data, list[str]()
    arrays = [array for run in state.runs.values() for array in run.arrays if array.inputs is not None]
    expected = {pair for array in arrays for pair in _readers(array)}
    files = set(data.files.values())
    known = {(file, reader) for file in files for reader in file.readers}
    for file, reader in known ^ expected:
        array = reader.inputs.array
        where = f"r{array.run.number}.{reader.element or array.first}"
        wrong.append(f"{where}: reads {file.digest}, or is not ready, and the index of files says otherwise")
    wrong += _caches(state, files)
    located = Counter(reader.inputs for file, reader in known if file.caches and reader.element != SHARED)
    for array in arrays:
        if array.inputs is not None and located[array.inputs] != array.inputs.located:
            wrong.append(f"r{array.run.number}[{array.first}]: {array.inputs.located} inputs of its tasks located")
    if data.located != sum(1 for file, _ in known if file.caches):
        wrong.append(f"{data.located} inputs located in all")
    for run, element in data.held:
        found = state.runs[run].array_of(element) if run in state.runs else None
        if found is None or element not in found.todo:
            wrong.append(f"r{run}.{element}: kept for its data, and not ready")
    wrong += [f"{name}: to be looked at again, and not here" for name in data.again if name not in state.pilots]
    return wrong


def _readers(array: Array) -> set[tuple[File, Reader]]:
    inputs = array.inputs
    assert inputs is not None
    found = {(file, Reader(inputs, element)) for element in array.todo for file in inputs.own(element)}
    return found | {(file, Reader(inputs, SHARED)) for file in inputs.shared if array.todo}


def _caches(state: State, files: set[File]) -> list[str]:
    data, wrong = state.data, list[str]()
    told: dict[tuple[Cache, File], int] = {}
    for name, known in data.told.items():
        if name not in state.pilots:
            wrong.append(f"{name}: files are known of it, and it is gone")
            continue
        cache = data.caches[cache_key(state.pilots[name])]
        for file in known:
            told[cache, file] = told.get((cache, file), 0) + 1
    counted = {(cache, file): count for file in files for cache, count in file.caches.items()}
    if data.count != sum(map(len, data.told.values())):
        wrong.append(f"{data.count} files told of counted")
    if told != counted:
        wrong.append(f"{len(counted)} files counted in caches, {len(told)} told by pilots")
    for cache in data.caches.values():
        if set(cache.wanted) != {file for file in files if cache in file.caches and file.readers}:
            wrong.append(f"cache of {cache.key}: its files that are read are not those that are wanted")
        if any(name not in state.pilots for name in cache.pilots):
            wrong.append(f"cache of {cache.key}: of a pilot that is gone")
    return wrong
