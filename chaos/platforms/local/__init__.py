"""Pods without a cluster: real namespaces, cgroups and links on any Linux machine.

Four programs, each the parent of the next:

    runner (`chaos run`) -> keeper -> host -> pods

`platform` is the runner's side, `keeper` removes what the kernel does not, `host` is pid 1 of the cluster and starts
pods, `enter` sets one pod up. When any of them ends, by whatever signal, all below it end, and nothing stays behind.
"""
