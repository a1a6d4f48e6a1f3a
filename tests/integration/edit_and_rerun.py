"""One start of a story in which a person edits code and runs it again. The story is made of its seed; every value that a
call returns holds the version that this script put into the file, so it knows what is right. Exits with 1 otherwise.

    STORY_START=0 python edit_and_rerun.py SEED FOLDER
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import py_compile
import random
import shutil
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shoal

SEED, FOLDER, START = int(sys.argv[1]), Path(sys.argv[2]), int(os.environ["STORY_START"])
IS_LONG = os.environ.get("STORY_LONG") == "1"  # more happens in each start
SHAPES = {  # name of the module -> file, and files that must be there
    "plain": ("m", "m.py", ()),
    "nested": ("pkg.sub.deep", "pkg/sub/deep.py", ("pkg/__init__.py", "pkg/sub/__init__.py")),
    "namespace": ("space.part.mod", "space/part/mod.py", ()),
    "becomes a package": ("m", "m.py", ()),
}
# Every module has this form. All versions are of the same length, so that all texts of a file are.
TEXT = """
from pathlib import Path
import {helper} as helper
VERSION = "{version}"
DATA = Path({data!r}).read_text()
STATE = []
def f(x=None):
    return VERSION
def g(x=None):
    return "g" + VERSION
def through(x=None):
    return helper.VERSION
def lazy(x=None):
    import late
    return late.VERSION
def data(x=None):
    return DATA
def mutate(x=None):
    global VERSION
    VERSION = "mutated"
    STATE.append(1)
def state(x=None):
    return len(STATE)
def begin(word):
    STATE.append(word + VERSION)
def begun(x=None):
    return STATE[0]
class Thing:
    version = "{version}"
    def tell(self):
        return self.version
def of_thing(thing):
    return thing.tell()
def recorded(ledger, x):
    with open(ledger, "a") as file:
        file.write(VERSION + "\\n")
    return VERSION
"""


class Files:
    """The files of the story, edited in the manners that fool caches; what they hold is kept between starts."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._record = FOLDER / "versions.json"
        self.versions: dict[str, str] = json.loads(self._record.read_text()) if self._record.exists() else {}
        self.number = itertools.count(int(max(self.versions.values(), default="v0")[1:]) + 1)

    def write(self, name: str, template: str, **more: str) -> str:
        version = f"v{next(self.number):06d}"
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = template.format(version=version, **more)
        manner = self._rng.choice(["write", "same time", "replace"])
        before = path.stat() if path.exists() else None
        if manner == "same time" and before is not None and path.suffix == ".py":
            py_compile.compile(str(path))  # which then counts as fresh
        if manner == "replace":
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").replace(path)
        else:
            path.write_text(text)
        if manner == "same time" and before is not None:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.versions[name] = version
        self._record.write_text(json.dumps(self.versions))
        return version


class Story:
    """What happens in this start."""

    def __init__(self) -> None:
        self.shape = random.Random(SEED).choice(list(SHAPES)[: 3 if SEED % 5 == 0 else 4])
        self.rng = random.Random(f"{SEED} {START}")
        self.files = Files(self.rng)
        self.name, self.file, others = SHAPES[self.shape]
        for other in others:
            (FOLDER / other).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / other).touch()
        package = self.name.rpartition(".")[0]
        self.helper = f"{package}.helper" if package else "helper"
        if self.shape == "becomes a package" and START > 0:
            (FOLDER / "m.py").unlink(missing_ok=True)
            self.file = "m/__init__.py"
        sys.path.insert(0, str(FOLDER))
        self.told: list[str] = []
        self.cells: dict[str, str] = {}

    # --- edits
    def edit(self) -> str:
        return self.files.write(self.file, TEXT, helper=self.helper, data=str(FOLDER / "data.txt"))

    def edit_helper(self) -> str:
        return self.files.write(self.helper.replace(".", "/") + ".py", 'VERSION = "{version}"\n')

    def edit_late(self) -> str:
        return self.files.write("late.py", 'VERSION = "{version}"\n')

    def edit_data(self) -> str:
        return self.files.write("data.txt", "{version}")

    # --- checks
    def check(self, what: str, got: Any, expected: Any) -> None:
        self.told.append(what)
        if got != expected:
            print(f"WRONG seed={SEED} start={START} shape={self.shape}: {what}: {got!r}, not {expected!r}; {self.told}")
            sys.exit(1)

    def call(self, ex: shoal.Executor, what: str, function: Callable[..., Any], expected: Any, *args: Any) -> None:
        way = self.rng.choice(["submit", "map", "chunks"]) if not args else "submit"
        if way == "submit":
            self.check(f"{what} by submit", ex.submit(function, *args).result(60), expected)
        else:
            got = list(ex.map(function, range(5), chunksize=1 if way == "map" else 2))
            self.check(f"{what} by {way}", got, [expected] * 5)

    # --- one start
    def tell(self) -> None:
        if "data.txt" not in self.files.versions or self.rng.random() < 0.7:
            self.edit_data()
        if self.file not in self.files.versions or self.rng.random() < 0.8:
            self.edit()
        if START == 0 or self.rng.random() < 0.5:
            self.edit_helper()
        if START == 0 or self.rng.random() < 0.5:
            self.edit_late()
        forget_compiled()
        self.module: Any = importlib.import_module(self.name)
        helper = self.helper.replace(".", "/") + ".py"
        self.loaded = {"f": self.files.versions[self.file], "helper": self.files.versions[helper]}
        for _ in range(self.rng.choice([1, 2]) if IS_LONG else 1):
            with shoal.Executor(attach=False, initializer=self.module.begin, initargs=("i",)) as ex:
                data = self.files.versions["data.txt"]
                for _ in range(self.rng.choice([2, 3, 4]) if IS_LONG else 1):
                    step = self.rng.choice(
                        [self.plain, self.edited, self.reloaded, self.late, self.cell, self.alias, self.classes]
                    )
                    step(ex)
                self.call(ex, "data read at import", self.module.data, data)
                self.call(ex, "through the helper", self.module.through, self.loaded["helper"])
                self.call(ex, "initializer", self.module.begun, "i" + self.loaded["f"])
                ex.submit(self.module.mutate).result(60)
            self.edit_data()
        with shoal.Executor(attach=False) as ex:
            self.call(ex, "globals of an earlier executor", self.module.state, 0)
            self.plain(ex)

    def plain(self, ex: shoal.Executor) -> None:
        self.call(ex, "f", self.module.f, self.loaded["f"])
        self.call(ex, "g", self.module.g, "g" + self.loaded["f"])

    def edited(self, ex: shoal.Executor) -> None:
        """Edited and not reloaded: this process still has the old code, and so have the calls."""
        self.edit()
        self.call(ex, "edited, not reloaded", self.module.f, self.loaded["f"])

    def reloaded(self, ex: shoal.Executor) -> None:
        old = self.module.f
        self.loaded["f"] = self.edit()
        if self.rng.random() < 0.5:
            self.loaded["helper"] = self.edit_helper()
            refresh(self.module.helper)
        refresh(self.module)
        self.call(ex, "g after a reload", self.module.g, "g" + self.loaded["f"])
        self.call(ex, "f after a reload", self.module.f, self.loaded["f"])
        self.call(ex, "f of before the reload", old, old())

    def late(self, ex: shoal.Executor) -> None:
        """What only the calls import is what the file holds when they are submitted."""
        if self.rng.random() < 0.6:
            self.edit_late()
        self.call(ex, "imported by the call", self.module.lazy, self.files.versions["late.py"])

        def own(x: object = None) -> Any:
            import late  # type: ignore[import-not-found]

            return late.VERSION

        self.call(ex, "imported by a function of the script", own, self.files.versions["late.py"])

    def alias(self, ex: shoal.Executor) -> None:
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(f"from {self.name} import f, g as h\ndef both(x=None): return f(), h()", space)
        self.call(ex, "alias", space["both"], space["both"]())
        self.reloaded(ex)
        self.call(ex, "alias after a reload", space["both"], space["both"]())
        self.call(ex, "alias itself", space["f"], space["f"]())

    def cell(self, ex: shoal.Executor) -> None:
        """Cells of a notebook: everything lives in `__main__`, and is defined again and again."""
        main = vars(sys.modules["__main__"])
        for _ in range(2):
            word = f"c{next(self.files.number):06d}"
            part = self.rng.choice(["helper", "function", "constant", "class"])
            if not self.cells or part == "helper":
                exec(f"def cell_helper(): return '{word}'", main)
                self.cells["helper"] = word
            if part == "constant" or "constant" not in self.cells:
                exec(f"CELL = ['{word}']", main)
                self.cells["constant"] = word
            if part == "class" or "class" not in self.cells:
                exec(f"class Cell:\n  word = '{word}'\n  def tell(self): return self.word", main)
                self.cells["class"] = word
            if part == "function" or "function" not in self.cells:
                exec(f"def cell(x=None, *, d='{word}'): return [d, cell_helper(), CELL[0], Cell().tell()]", main)
                self.cells["function"] = word
            expected = [self.cells[one] for one in ("function", "helper", "constant", "class")]
            self.call(ex, f"cell with another {part}", main["cell"], expected)
        main["cell"].__kwdefaults__["d"] = self.cells["function"] = "changed in place"
        main["CELL"][0] = self.cells["constant"] = "also"
        main["Cell"].word = self.cells["class"] = "and this"
        expected = ["changed in place", self.cells["helper"], "also", "and this"]
        self.call(ex, "cell changed in place", main["cell"], expected)
        future = ex.submit(lambda made: made, main["Cell"]())
        main["Cell"].word = self.cells["class"] = "changed meanwhile"
        thing = future.result(60)
        self.check("an object of a cell's class", isinstance(thing, main["Cell"]), True)
        self.check("a class after an older object came home", main["Cell"].word, "changed meanwhile")

    def classes(self, ex: shoal.Executor) -> None:
        self.call(ex, "object", self.module.of_thing, self.loaded["f"], self.module.Thing())
        self.reloaded(ex)
        self.call(ex, "object after a reload", self.module.of_thing, self.loaded["f"], self.module.Thing())

    # --- killed and started again
    def tell_killed(self) -> None:
        """The first start is killed; the second reuses results only if nothing has changed that they were made with."""
        rng = random.Random(SEED)
        change = rng.choice(["nothing", "module", "helper", "late", "initializer", "argument of the initializer"])
        if START == 0:
            self.edit_data()
            self.edit(), self.edit_helper(), self.edit_late()
            self.files.write(
                "init.py", 'VERSION = "{version}"\ndef begin(word): import builtins; builtins.i = VERSION + word'
            )
        elif change == "module":
            self.edit()
        elif change == "helper":
            self.edit_helper()
        elif change == "late":
            self.edit_late()
        elif change == "initializer":
            self.files.write(
                "init.py", 'VERSION = "{version}"\ndef begin(word): import builtins; builtins.i = VERSION + word'
            )
        forget_compiled()
        word = "other" if START and change.startswith("argument") else "word"
        module, init = importlib.import_module(self.name), importlib.import_module("init")
        ledger = str(FOLDER / "ledger")

        def work(n: int) -> list[Any]:
            import builtins

            import late

            return [module.recorded(ledger, n), module.helper.VERSION, late.VERSION, vars(builtins)["i"], n]

        ex = shoal.Executor(name="killed", initializer=init.begin, initargs=(word,))
        got = list(ex.map(work, range(6)))
        versions = self.files.versions
        helper = versions[self.helper.replace(".", "/") + ".py"]
        part = [versions[self.file], helper, versions["late.py"], versions["init.py"] + word]
        self.check(f"killed, then another {change}", got, [[*part, n] for n in range(6)])
        if START == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        ex.shutdown()
        made = len(Path(ledger).read_text().splitlines())
        self.check(f"calls made where {change} changed", made, 6 if change == "nothing" else 12)


def forget_compiled() -> None:
    """Python itself would take a `.pyc` of the same second and size for fresh, and this process must be right."""
    for folder in FOLDER.rglob("__pycache__"):
        shutil.rmtree(folder)


def refresh(module: types.ModuleType) -> None:
    """Reload what the file holds."""
    forget_compiled()
    importlib.invalidate_caches()
    importlib.reload(module)


if __name__ == "__main__":
    sys.dont_write_bytecode = SEED % 2 == 0
    story = Story()
    story.tell_killed() if SEED % 5 == 0 else story.tell()
    print("right", len(story.told))
