"""The requests that the paper's task queue gets, by type, and where the paper names them."""

from __future__ import annotations

REGISTER, SHUTDOWN, HEARTBEAT, GET_TASK, DOWNLOAD = "register", "shutdown", "heartbeat", "get task", "download"
COMPLETED, REPORT, NOTICE, FILE, TASK_LIST, MAPPING = "completed", "report", "notice", "file", "task list", "mapping"

LINES = {
    REGISTER: "III.A: a pilot first registers",
    SHUTDOWN: "III.B: messages at registration, shutdown and task completion",
    HEARTBEAT: "III.B: periodic, not needed any more when distributed; the period is not printed",
    GET_TASK: "IV.A: pilots contact the queue for task retrieval",
    DOWNLOAD: "III.B: the task itself, a file",
    COMPLETED: "III.B: at task completion",
    REPORT: "III.B: the completion report is uploaded",
    NOTICE: "not printed: whatever else a pilot says of a task",
    FILE: "IV.A: file tracking, with the task queue only; also of links on the same host, CMS IV.D",
    TASK_LIST: "III.B: the master asks for the tasks of its site",
    MAPPING: "III.B: the master tells which task went to which pilot",
}
