"""The paper's experiments, one file each, and the report they write."""
