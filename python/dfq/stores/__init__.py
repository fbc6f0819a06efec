"""The stores: a local directory, memory (with faults, for simulation) and S3."""
