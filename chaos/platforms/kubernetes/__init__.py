"""The same pods on a real Kubernetes: what passes on local pods runs from the same file against a cluster.

    runner (`chaos run --platform kubernetes`) -- API server -- kubelets: the members' pods
                                                      |
                                                 agents, one per node: what the agent of local pods does, there

The runner talks to the API server and to nothing else. All that belongs to a run is owned by the run's Lease, so that
garbage collection removes it. The runner renews that Lease; each node's agent holds an injection only while it sees it
renewed, on its own clock, and gives back what it holds when the runner, the API server or its own network is gone.

`client` talks to the API server, `placing` chooses nodes, `layout` says who keeps whom, `objects` makes the manifests,
`entry` is what a pod runs first, `platform` and `cluster` are the runner's side, `arrival` says why members do not
come, `lives` and `logs` tell what happened from pods and their logs, `orders` asks the agents for injections, `agent`
carries them out, `install` puts agents and rights into a cluster, `doctor` looks whether all of it is there.
"""
