"""What the agent does to the kernel, one module per kind of state; `catalogue` tells which injection is whose."""
