"""Shipped experiments: YAML files, one sentence of `why` each. `chaos list` shows them."""
