"""The words of torchchaos as frozen data: no I/O, no clocks, no processes."""
