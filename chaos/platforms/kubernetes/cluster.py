"""The runner's side of a cluster: who is alive, what they say, ending the job, disturbing it.

`serve` is the task that follows pods, logs and injections; everything else is called by the runner while it runs.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from math import inf

import anyio
import msgspec
from anyio.abc import TaskGroup

from chaos.model.events import BytesCarried, EventsLost, MemberExited, TrainerStarted
from chaos.model.injections import HeldInjection, OneShot, Proof
from chaos.model.ports import Deployment, Emit, Hold, PlatformLost
from chaos.model.topology import Restart
from chaos.platforms.kubernetes.agent.facts import FACTS, Facts
from chaos.platforms.kubernetes.arrival import Arrivals
from chaos.platforms.kubernetes.client import Kube, KubeError, Object
from chaos.platforms.kubernetes.clocks import Skews
from chaos.platforms.kubernetes.disturb import Disturbances, Start
from chaos.platforms.kubernetes.layout import Keeper, Keepers, Kind
from chaos.platforms.kubernetes.lives import Entered, Lives
from chaos.platforms.kubernetes.logs import BEGINS, Pod, PodLog
from chaos.platforms.kubernetes.objects import (
    CONTROLLER,
    CONTROLLER_GRACE_S,
    MEMBER_GRACE_S,
    Names,
)
from chaos.platforms.kubernetes.orders import Orders
from chaos.platforms.kubernetes.preflight import AGENT, AGENTS

STOP_SLACK_S = 10.0
"""For the API server and the kubelet to come to it, on top of the grace that the pods have."""
HOPELESS = ("ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")
BACK_OFF = "CrashLoopBackOff"
SKEW_S_MAX = 1.0
"""A clock that is further off is told of."""

log = logging.getLogger(__name__)


class KubernetesCluster:
    """Implements `chaos.model.ports.Cluster`. `nodes` are the plan's names of the cluster's nodes; `start` makes what
    keeps members alive, `places` says where in the network those nodes are.
    """

    def __init__(
        self,
        kube: Kube,
        names: Names,
        deployment: Deployment,
        keepers: Keepers,
        emit: Emit,
        orders: Orders,
        nodes: dict[str, str],
        start: Start,
        arrivals: Arrivals,
        places: dict[str, dict[str, str]],
    ) -> None:
        self._kube = kube
        self._names = names
        self._deployment = deployment
        self._keepers = keepers
        self._emit = emit
        self._orders = orders
        self._nodes = nodes
        epoch_wall_s = time.time() - (time.monotonic() - deployment.epoch_mono_s)
        self._roles = deployment.workload.members()
        self._lives = Lives(self._roles, epoch_wall_s)
        self._skews = Skews()
        self._skewed: set[str] = set()
        self._pods: dict[str, Pod] = {}
        lives, pods = self._lives, self._pods
        self._disturbances = Disturbances(kube, names, keepers, orders, lives, pods, nodes, start)
        self._arrivals = arrivals
        self._places = places
        self._over = anyio.Event()
        self._over_status = 0
        self._tasks: TaskGroup | None = None

    async def serve(self) -> None:
        """Until cancelled. PlatformLost when a pod can never start."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._orders.follow)
            self._tasks.start_soon(self._kube.follow, AGENTS, self._beat, self._beat, {"labelSelector": AGENT})
            self._tasks.start_soon(self._arrivals.watch)
            query = {"labelSelector": self._names.selector}
            await self._kube.follow(f"{self._names.core}/pods", self._pod_seen, self._pod_gone, query)

    async def wait_job_over(self) -> int:
        await self._over.wait()
        return self._over_status

    async def stop(self) -> None:
        controllers = [member for member, role in self._roles.items() if role == CONTROLLER]
        for members, grace_s in ((controllers, CONTROLLER_GRACE_S), (list(self._roles), MEMBER_GRACE_S)):
            lives = [self._lives[member] for member in members if member in self._lives]
            for keeper in dict.fromkeys(map(self._keepers.of, members)):
                await self._retire(keeper)
            with anyio.move_on_after(grace_s + STOP_SLACK_S):
                for life in lives:
                    await life.exited.wait()

    async def inject(self, injection: OneShot) -> Proof:
        return await self._disturbances.inject(injection)

    def hold(self, injection: HeldInjection, for_s: float = inf) -> AbstractAsyncContextManager[Hold]:
        return self._disturbances.hold(injection, for_s)

    async def _retire(self, keeper: Keeper) -> None:
        """End members as their keeper does, with the pods' grace; they are not started again."""
        with suppress(KubeError):  # What cannot be ended in order is removed with everything else.
            match keeper.kind:
                case Kind.POD:
                    for pod in keeper.pods():
                        await self._kube.delete(f"{self._names.core}/pods/{pod}")
                case Kind.SET:
                    await self._kube.merge(f"{self._names.sets}/{keeper.name}", {"spec": {"replicas": 0}})
                case Kind.MESH:  # A mesh has one replica at least.
                    await self._kube.delete(f"{self._names.meshes}/{keeper.name}")

    def _beat(self, item: Object) -> None:
        self._carried(item)
        node = item["metadata"]["name"]
        self._skews.heard(node, item["spec"]["renewTime"])
        ahead_s = self._skews.ahead_s(node)
        if abs(ahead_s) > SKEW_S_MAX and node not in self._skewed:
            self._skewed.add(node)
            log.warning(
                "the clock of %s is %.1f s %s this one; times of its members are set right by that",
                *(node, abs(ahead_s), "ahead of" if ahead_s > 0 else "behind"),
            )

    def _carried(self, item: Object) -> None:
        """What the agent of a node tells of its pods' bytes, where the job has said that they matter."""
        if self._deployment.workload.gradients_over != "rdma":
            return
        facts = msgspec.json.decode(item["metadata"].get("annotations", {}).get(FACTS, "{}"), type=Facts)
        for life in self._lives.values():
            if life.uid in facts.carried:
                over_rdma, over_ethernet = facts.carried[life.uid]
                told = BytesCarried(
                    t_s=self._now_s(),
                    member="runner",
                    name=life.member,
                    member_incarnation=life.incarnation,
                    rdma_bytes=over_rdma,
                    ethernet_bytes=over_ethernet,
                )
                self._emit(told)

    def _pod_seen(self, item: Object) -> None:
        meta, uid = item["metadata"], item["metadata"]["uid"]
        member = self._keepers.member(meta["name"])
        if member is None:
            return  # Somebody else's, with our label.
        if uid not in self._pods:
            path = f"{self._names.core}/pods/{meta['name']}/log"
            log = PodLog(
                self._kube, path, partial(self._take, uid), partial(self._ended, uid), partial(self._lost, uid)
            )
            self._pods[uid] = Pod(log, member, meta["name"], uid, "", self._now_s())
            assert self._tasks is not None
            self._tasks.start_soon(log.run)
        pod = self._pods[uid]
        pod.node = item["spec"].get("nodeName", "")
        self._check(pod, item)
        self._arrivals.seen(member, item)
        pod.log.update(item)

    def _pod_gone(self, item: Object) -> None:
        if item["metadata"]["uid"] in self._pods:
            self._pods[item["metadata"]["uid"]].log.gone()

    def _check(self, pod: Pod, item: Object) -> None:
        """A pod that can never start ends the run; one whose container is held back after several ends is replaced.

        The kubelet's back-off grows to five minutes, and only a new pod is free of it.
        """
        for status in item["status"].get("containerStatuses", []):
            waiting = status["state"].get("waiting", {})
            if waiting.get("reason") in HOPELESS:
                raise PlatformLost(f"{pod.member}: {waiting['reason']}: {waiting.get('message', '')}")
            if waiting.get("reason") == BACK_OFF and self._tasks is not None:
                self._tasks.start_soon(self._disturbances.replace, pod)

    def _take(self, uid: str, line: bytes) -> None:
        """One line of a pod's log: an event, or ordinary output for the run's folder."""
        pod = self._pods[uid]
        if line.startswith(BEGINS):
            self._begin(pod, line)
        elif line.startswith(b"{") and b'"kind"' in line and b'"mono_s"' in line:
            if pod.life is None:
                self._lost(uid, "an event could be read only after the end of its life had been told")
                return
            for event in pod.life.lines.line(line):
                if isinstance(event, TrainerStarted):
                    pod.life.trainer = event.pid
                self._emit(self._lives.numbered(event))
        else:
            self._store(pod, line)

    def _begin(self, pod: Pod, line: bytes) -> None:
        try:
            entered = msgspec.json.decode(line, type=Entered)
        except msgspec.MsgspecError as error:
            self._lost(pod.uid, f"the first line of a life cannot be read: {error}")
            return
        entered = msgspec.structs.replace(entered, wall_s=entered.wall_s - self._skews.ahead_s(pod.node))
        node = self._named(pod)
        life, started = self._lives.begin(entered, pod.name, pod.uid, pod.node, node, pod.since_s, self._now_s())
        pod.life = life
        self._emit(msgspec.structs.replace(started, place=self._places.get(pod.node, {})))

    def _named(self, pod: Pod) -> str:
        """What the plan calls a pod's node. Where a queue chooses the nodes, one gets the name that its first member's
        has in the plan, or another that is free.
        """
        if pod.node not in self._nodes:
            places = sorted(self._deployment.topology.placements, key=lambda place: place.member != pod.member)
            free = [place.node for place in places if place.node not in self._nodes.values()]
            self._nodes[pod.node] = free[0] if free else pod.node
        return self._nodes[pod.node]

    def _ended(self, uid: str, status: int, at_mono_s: float) -> None:
        pod = self._pods[uid]
        life, pod.life = pod.life, None
        if life is None:
            return  # It ended before it said a word.
        if self._lives.get(life.member) is life:
            del self._lives[life.member]
        t_s = at_mono_s - self._deployment.epoch_mono_s
        self._emit(MemberExited(t_s=t_s, member=life.member, incarnation=life.incarnation, status=status))
        life.exited.set()
        never = self._deployment.topology.restart is Restart.NEVER
        if self._roles[life.member] == CONTROLLER and (status == 0 or never) and not self._over.is_set():
            self._over_status = status
            self._over.set()
            assert self._tasks is not None
            self._tasks.start_soon(self._retire, self._keepers.of(life.member))

    def _lost(self, uid: str, reason: str) -> None:
        pod = self._pods[uid]
        incarnation = pod.life.incarnation if pod.life else 0
        self._emit(EventsLost(t_s=self._now_s(), member=pod.member, incarnation=incarnation, reason=reason))

    def _store(self, pod: Pod, line: bytes) -> None:
        number = pod.life.incarnation if pod.life else 0
        folder = self._deployment.run_dir / "members" / pod.member
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{number}.log", "ab") as file:
            file.write(line + b"\n")

    def _now_s(self) -> float:
        return time.monotonic() - self._deployment.epoch_mono_s
