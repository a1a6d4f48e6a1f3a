# Types of what `shoal/__init__.py` imports when it is first used.
from collections.abc import Mapping

from shoal.client.executor.attach import Attached as Attached
from shoal.client.executor.attach import attach as attach
from shoal.client.executor.executor import Executor as Executor
from shoal.client.executor.hooks import Run as Run
from shoal.client.executor.hooks import Task as Task
from shoal.client.executor.outcome import TaskFailed as TaskFailed
from shoal.client.unpickle.rules import UntrustedResult as UntrustedResult
from shoal.client.workflows.failed import WorkflowFailed as WorkflowFailed
from shoal.client.workflows.workflow import Workflow as Workflow
from shoal.report.partial import partial as partial
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
def emit(values: Mapping[str, object] | None = None, /, **named: object) -> None: ...
