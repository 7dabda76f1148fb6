"""Submitted: what ``plan`` shows of runs whose core is a job."""
