# What members of the job run: TorchTitan, TorchFT and Monarch with the recipes that come with torchchaos.
#   docker build -f chaos/platforms/kubernetes/deploy/training.Dockerfile -t REGISTRY/torchchaos-training:1 .
# The wheels of PyTorch bring CUDA and NCCL; RDMA needs the user-space drivers too.
FROM python:3.12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ibverbs-providers libibverbs1 librdmacm1 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY chaos chaos
COPY experiments experiments
COPY faults faults
COPY training training
RUN pip install --no-cache-dir '.[training]' && rm -rf /src/*
WORKDIR /
