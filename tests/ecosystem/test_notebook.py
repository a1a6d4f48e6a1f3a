"""A notebook, executed by nbclient as a front end does: an executor, map with progress, functions defined again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("default")]

CELLS = [
    "import shoal\npool = shoal.Executor(name='notebook')\nimport os\nhere = os.getpid()",
    "def f(x):\n    return x + 1\nprint(list(pool.map(f, range(40), progress=True)) == list(range(1, 41)))",
    "def f(x):\n    return x * factor\nfactor = 3\nprint(pool.submit(f, 4).result())",
    "factor = 5\nprint(pool.submit(f, 4).result())",
    "def f(x):\n    return helper(x)\ndef helper(x):\n    return -x\nprint(list(pool.map(f, range(3))))",
    "def helper(x):\n    return x * 100\nprint(list(pool.map(f, range(3))))",
    "class Point:\n    def __init__(self, x):\n        self.x = x\nprint(pool.submit(lambda p: p.x, Point(7)).result())",
    "print(pool.submit(os.getpid).result() != here, os.getpid() == here)",
    "pool.submit(print, 'said by a call').result()",
    "pool.shutdown()\nprint(len(shoal.results(pool.run)))",
]
PRINTED = ["True", "12", "20", "[0, -1, -2]", "[0, 100, 200]", "7", "True True", "said by a call", "51"]


def printed(cell: Any) -> str:
    return "".join(out["text"] for out in cell["outputs"] if out["output_type"] == "stream" and out["name"] == "stdout")


def test_a_notebook_runs_from_top_to_bottom(pool: Cluster, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert [text for cell in notebook.cells if (text := printed(cell).strip())] == PRINTED
    (bar,) = [out for out in notebook.cells[1]["outputs"] if out["output_type"] == "display_data"]
    assert bar["data"]["text/html"].startswith('<progress value="40" max="40"></progress>')
    assert bar["data"]["text/plain"].startswith("f  ################  40/40")
    assert not [out for cell in notebook.cells for out in cell["outputs"] if out["output_type"] == "error"]
