"""Why members do not come: nobody keeps a mesh, a quota refuses their pods, no node has room, the queue does not admit.

Who has no pod, or no admission, within its time ends the run with one sentence; who waits for a node is told of in the
journal, since another pod may make room at any time. Admissions are told of for as long as the run lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio

from chaos.model.events import Admission, MemberWaits
from chaos.model.ports import Emit, PlatformLost
from chaos.model.wording import counted
from chaos.platforms.kubernetes.client import Kube, KubeError, Object
from chaos.platforms.kubernetes.layout import Keeper, Keepers, Kind
from chaos.platforms.kubernetes.objects import KUEUE, Names
from chaos.platforms.kubernetes.options import Queue

POD_S = 30.0
"""For a keeper to make its pods: what the API server refuses it, it tries again in vain."""
GATED = "SchedulingGated"


class Arrivals:
    """Watches how the pods of one run come. `clock` is the run's, in seconds."""

    def __init__(
        self, kube: Kube, names: Names, keepers: Keepers, queue: Queue | None, emit: Emit, clock: Callable[[], float]
    ) -> None:
        self._kube = kube
        self._names = names
        self._keepers = keepers
        self._queue = queue
        self._emit = emit
        self._clock = clock
        self._awaited = {member for keeper in keepers if not keeper.on_demand for member in keeper.members}
        self._waiting: dict[str, str] = {}
        """Member -> why it has no place."""
        self._claims: dict[str, Admission] = {}
        self._admitted: set[str] = set()
        self._changed = anyio.Event()

    def seen(self, member: str, pod: Object) -> None:
        """A pod as it is now."""
        self._awaited.discard(member)
        scheduled: Object = next(
            (one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"), {}
        )
        reason = ""
        if scheduled.get("status") == "False":
            reason = str(scheduled.get("message") or scheduled.get("reason"))
        if scheduled.get("reason") == GATED and self._queue is not None:
            reason = "the queue has not admitted it"
        if reason and reason != self._waiting.get(member):
            self._emit(MemberWaits(t_s=self._clock(), member=member, reason=reason))
        self._waiting[member] = reason
        self._wake()

    async def watch(self) -> None:
        """Until cancelled. PlatformLost when somebody does not come in time."""
        async with anyio.create_task_group() as tasks:
            if self._queue is not None:
                tasks.start_soon(self._kube.follow, await self._workloads(), self._claim, self._claim_gone)
                tasks.start_soon(self._admission, self._queue)
            with anyio.move_on_after(POD_S):
                await self._until(lambda: not self._awaited)
            if self._awaited:
                raise PlatformLost(await self._why(self._keepers.of(min(self._awaited))))

    async def _workloads(self) -> str:
        try:
            version = (await self._kube.get(f"/apis/{KUEUE}"))["preferredVersion"]["groupVersion"]
        except KubeError as error:
            raise PlatformLost(f"the queue cannot be watched: {error}") from error
        return f"/apis/{version}/namespaces/{self._names.namespace}/workloads"

    async def _why(self, keeper: Keeper) -> str:
        name, kind = keeper.name, keeper.kind
        if kind is Kind.MESH and not await self._exists(f"{self._names.sets}/{name}"):
            return (
                f"MonarchMesh {name} got no StatefulSet within {POD_S:g} s: the Monarch operator does not run; start "
                "it, or type layout: statefulset in the platform file"
            )
        refusal = "nobody says why"
        with suppress(KubeError):  # Whoever may not read events is told the rest.
            query = f"involvedObject.name={name},reason=FailedCreate"
            found = await self._kube.get(f"{self._names.core}/events", fieldSelector=query)
            refusal = next((item["message"] for item in reversed(found["items"])), refusal)
        number = len(self._awaited & set(keeper.members))
        return f"{kind.value} {name} got {counted(number, 'pod')} too few within {POD_S:g} s: {refusal}"

    async def _exists(self, path: str) -> bool:
        try:
            await self._kube.get(path)
        except KubeError as error:
            return error.status != 404
        return True

    async def _admission(self, queue: Queue) -> None:
        """Every replica has to be admitted once; what becomes of it later is for the monitors to judge."""
        wanted = {member for keeper in self._keepers if keeper.queued for member in keeper.members}
        with anyio.move_on_after(queue.admitted_within_s):
            await self._until(lambda: wanted <= self._admitted)
            return
        reasons = {claim.reason for claim in self._claims.values() if claim.reason}
        missing = ", ".join(sorted(wanted - self._admitted))
        why = (
            "; ".join(sorted(reasons)) or f"no workload was made: is there a LocalQueue {queue.name} in the namespace?"
        )
        raise PlatformLost(f"the queue {queue.name} did not admit {missing} in {queue.admitted_within_s:g} s: {why}")

    def _claim(self, workload: Object) -> None:
        """A workload of Kueue's, if it is of this run."""
        members = self._of(workload)
        if not members:
            return
        conditions = {one["type"]: one for one in workload.get("status", {}).get("conditions", [])}
        admitted = conditions.get("Admitted", {}).get("status") == "True"
        told = Admission(
            t_s=self._clock(),
            member="queue",
            claim=workload["metadata"]["name"],
            members=members,
            admitted=admitted,
            flavors=_flavors(workload) if admitted else (),
            reason="" if admitted else _reason(conditions),
        )
        before = self._claims.get(told.claim)
        if before is None or (told.admitted, told.reason) != (before.admitted, before.reason):
            self._claims[told.claim] = told
            if told.admitted or told.reason:
                self._emit(told)
        if admitted:
            self._admitted |= set(members)
        self._wake()

    def _claim_gone(self, workload: Object) -> None:
        self._claims.pop(workload["metadata"]["name"], None)

    def _of(self, workload: Object) -> tuple[str, ...]:
        """The members that a workload is for, by who owns it: their keeper, or their pods."""
        owners = {owner["name"] for owner in workload["metadata"].get("ownerReferences", [])}
        pods = self._keepers.members()
        found = {member for pod, member in pods.items() if pod in owners or self._keepers.of(member).name in owners}
        return tuple(sorted(found))

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


def _flavors(workload: Object) -> tuple[str, ...]:
    given = workload["status"].get("admission", {}).get("podSetAssignments", [])
    return tuple(sorted({flavor for one in given for flavor in one.get("flavors", {}).values()}))


def _reason(conditions: dict[str, Object]) -> str:
    """What was said last of why it is not admitted."""
    said = [conditions[kind] for kind in ("Evicted", "QuotaReserved", "Admitted") if kind in conditions]
    return max(said, key=lambda one: str(one["lastTransitionTime"]))["message"] if said else ""
