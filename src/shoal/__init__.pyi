# What `shoal/__init__.py` loads when it is asked for, with its types.
from shoal.client.attach import Attached as Attached
from shoal.client.attach import attach as attach
from shoal.client.executor import Executor as Executor
from shoal.client.hooks import Run as Run
from shoal.client.hooks import Task as Task
from shoal.client.outcome import TaskFailed as TaskFailed
from shoal.client.restricted_rules import UntrustedResult as UntrustedResult
from shoal.report.results import results as results
from shoal.wire.payload import Ref as Ref

__version__: str
__all__: list[str]

class CurrentTask:
    run: str
    task: str
    attempt: int
    seed: int | None
    index: int
    def __init__(self, run: str, task: str, attempt: int, seed: int | None, index: int) -> None: ...

def current_task() -> CurrentTask | None: ...
