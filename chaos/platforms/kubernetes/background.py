"""Tasks that run beside a block and end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background() -> AsyncIterator[TaskGroup]:
    """What goes wrong in the block is raised as it is, and not in a group: whoever waits for it knows its type."""
    async with anyio.create_task_group() as tasks:
        failure: Exception | None = None
        try:
            yield tasks
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
