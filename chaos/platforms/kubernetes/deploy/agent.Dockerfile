# The agent of a node, and the runner: the framework without the PyTorch stack.
#   docker build -f chaos/platforms/kubernetes/deploy/agent.Dockerfile -t REGISTRY/torchchaos-agent:1 .
FROM python:3.12-slim
# Faults that drop packets are nftables rules, which expire in the kernel.
RUN apt-get update && apt-get install --yes --no-install-recommends nftables && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY chaos chaos
COPY experiments experiments
COPY faults faults
COPY training training
RUN pip install --no-cache-dir . && rm -rf /src/*
WORKDIR /
