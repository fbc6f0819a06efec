"""push_tasks.py FOLDER NAME COUNT: push so many tasks, a third of them one by one."""

from __future__ import annotations

import sys

from dfq.engines.file import FileQueue

folder, name, count = sys.argv[1:]
queue = FileQueue(folder)
ids = [f"{name}-{number}" for number in range(int(count))]
alone = len(ids) // 3
for task_id in ids[:alone]:
    queue.push({"id": task_id}, id=task_id)
queue.push_many(queue.new_task({"id": task_id}, id=task_id) for task_id in ids[alone:])
